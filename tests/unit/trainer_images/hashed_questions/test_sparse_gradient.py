"""The gradient of the touched terms equals the gradient of the whole model."""

import numpy as np
import torch
from hashed_questions.sparse_gradient import SparseBatch
from torch.nn.functional import cross_entropy

TERMS = [np.array([2, 7, 30]), np.array([7]), np.array([], np.int64), np.array([1, 2, 63])]
LABELS = np.array([0, 2, 1, 2], np.int32)


def test_each_key_is_named_once_in_order() -> None:
    assert SparseBatch.of(TERMS, LABELS).keys.tolist() == [1, 2, 7, 30, 63]


def test_the_gradient_and_the_loss_are_those_of_dense_features() -> None:
    weights = torch.randn(64, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weights.requires_grad_()
    features = torch.zeros(len(TERMS), 64, dtype=torch.float64)
    for row, own in zip(features, TERMS, strict=True):
        row[own] = 1
    loss = cross_entropy(features @ weights, torch.from_numpy(LABELS).long(), reduction="sum")
    torch.autograd.backward(loss)
    batch = SparseBatch.of(TERMS, LABELS)
    gradient, sum_of_losses = batch.gradient(weights.detach().numpy().astype(np.float32)[batch.keys])
    assert weights.grad is not None
    np.testing.assert_allclose(gradient, weights.grad.numpy()[batch.keys], atol=1e-6)
    untouched = np.delete(weights.grad.numpy(), batch.keys, axis=0)
    assert not untouched.any()
    np.testing.assert_allclose(sum_of_losses, loss.item(), rtol=1e-6)


def test_large_scores_do_not_overflow() -> None:
    batch = SparseBatch.of(TERMS, LABELS)
    gradient, loss = batch.gradient(np.full((5, 3), 1e4, np.float32))
    assert np.isfinite(gradient).all()
    assert np.isfinite(loss)


def test_the_loss_of_a_question_that_is_far_from_right_is_finite() -> None:
    batch = SparseBatch.of([np.array([5])], np.array([1], np.int32))
    _, loss = batch.gradient(np.array([[200.0, 0.0, 0.0]], np.float32))
    assert loss == 200.0

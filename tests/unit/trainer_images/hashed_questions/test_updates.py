"""The server's changes of weights, compared with the formulas."""

import numpy as np
import pytest
from hashed_questions.updates import Push, Update, Weights

LR, L1 = 0.5, 0.1
KEYS = np.array([1, 3])
ROWS = np.array([[2.0, -4.0], [0.1, 1.0]], np.float32)


def weights(update: Update = Update.PROXIMAL, compensation: float = 0.0) -> Weights:
    made = Weights(4, 2, update, lr=LR, l1=L1, compensation=compensation)
    made.values[:] = [[1.0, -1.0], [0.02, 0.0], [-0.04, 3.0], [0.0, 0.2]]
    return made


def soft(values: np.ndarray) -> np.ndarray:
    shrunk: np.ndarray = np.sign(values) * np.maximum(np.abs(values) - LR * L1, 0)
    return shrunk


def test_a_step_is_one_of_the_gradient_and_a_proximal_one_of_all_weights() -> None:
    of = weights()
    expected = of.values.copy()
    expected[KEYS] -= LR * ROWS / 2
    of.apply([Push(KEYS, ROWS, 1.0)], examples=2)
    np.testing.assert_allclose(of.values, soft(expected), atol=1e-7)
    assert of.values[2, 0] == 0, "a small weight becomes 0 although no gradient names it"


def test_pushes_of_workers_add_up() -> None:
    together, apart = weights(), weights()
    together.apply([Push(KEYS, 2 * ROWS, 1.0)], examples=4)
    apart.apply([Push(KEYS, ROWS, 1.0), Push(KEYS, ROWS, 1.0)], examples=4)
    np.testing.assert_array_equal(together.values, apart.values)


def test_at_the_beginning_of_an_epoch_variance_reduction_takes_the_whole_gradient() -> None:
    """At the beginning of an epoch, both gradients of a batch are the same."""
    reduced, plain = weights(Update.PROXIMAL_SVRG), weights()
    reduced.begin_epoch()
    reduced.set_whole([Push(KEYS, ROWS, 1.0)], examples=2)
    np.testing.assert_array_equal(reduced.rows(KEYS, anchored=True), reduced.values[KEYS])
    reduced.apply([Push(KEYS, 0 * ROWS, 1.0)], examples=7)
    plain.apply([Push(KEYS, ROWS, 1.0)], examples=2)
    np.testing.assert_allclose(reduced.values, plain.values, atol=1e-7)


@pytest.mark.parametrize("drift", [0.0, 0.3])
def test_compensation_is_first_order_in_the_drift(drift: float) -> None:
    compensated, plain = weights(Update.DELAY_COMPENSATED, compensation=0.5), weights()
    read = compensated.values[KEYS] - np.float32(drift)
    mean = ROWS / 2
    compensated.apply([Push(KEYS, ROWS, 1.0, read)], examples=2)
    expected = (2 * (mean + 0.5 * drift * mean * mean)).astype(np.float32)
    plain.apply([Push(KEYS, expected, 1.0)], examples=2)
    np.testing.assert_allclose(compensated.values, plain.values, atol=1e-6)


def test_the_state_is_restored() -> None:
    of, other = weights(Update.PROXIMAL_SVRG), weights(Update.PROXIMAL_SVRG)
    of.begin_epoch()
    of.set_whole([Push(KEYS, ROWS, 1.0)], examples=2)
    of.apply([Push(KEYS, ROWS, 1.0)], examples=2)
    other.load_state_dict(of.state_dict())
    for each in (of, other):
        each.apply([Push(KEYS, ROWS, 1.0)], examples=2)
    np.testing.assert_array_equal(other.values, of.values)

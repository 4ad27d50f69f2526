"""Real groups learn the features that one process learns, with either kind of negatives, and go on."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from image_classification.data import Images
from image_classification.embed import Copies, Learner, Parameters, class_accuracy
from torch import nn
from trainer_kit.group import Group

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.groups import ROOT
from tests.support.trainers.images import epochs, trained, trained_in_double, write_digits
from tests.support.trainers.launcher import Launcher, end_of

# With a large learning rate, even few steps of a small network multiply rounding errors a thousandfold.
SMALL = {"EMBEDDING": "8", "LR": "0.002"}
OF_EARLIER_STEPS = {**SMALL, "QUEUE": "128", "KEY_MOMENTUM": "0.9"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("digit-images"))


@pytest.mark.parametrize("negatives", [SMALL, OF_EARLIER_STEPS], ids=["of all ranks", "of earlier steps"])
def test_a_group_learns_the_features_that_one_process_learns(
    tmp_path: Path, data: Path, forks: Sequence[ForkServer], negatives: dict[str, str]
) -> None:
    for folder in (alone := tmp_path / "alone", together := tmp_path / "together"):
        folder.mkdir()
    _, model, _ = trained_in_double(forks, "embed", alone, data, 1, **negatives)
    _, other, said = trained_in_double(forks, "embed", together, data, 2, **negatives)
    assert "statistics are those of each rank" not in said, "batch normalization is over the group"
    assert set(other) == set(model)
    for name, value in model.items():
        torch.testing.assert_close(other[name], value, rtol=1e-9, atol=1e-9, msg=name)


def test_a_group_with_a_queue_that_was_stopped_goes_on_bit_for_bit(
    tmp_path: Path, data: Path, forks: Sequence[ForkServer]
) -> None:
    for folder in (whole := tmp_path / "whole", parts := tmp_path / "parts"):
        folder.mkdir()
    _, model, _ = trained(forks, "embed", whole, data, 2, **OF_EARLIER_STEPS)
    saved = {**OF_EARLIER_STEPS, "CHECKPOINT_URI": str(parts / "saved"), "CHECKPOINT_EVERY_SECONDS": "3600"}
    trained(forks, "embed", parts, data, 2, **saved, EPOCHS="2")
    _, resumed, output = trained(forks, "embed", parts, data, 2, **saved, JOB_ATTEMPT="2")
    assert "resuming from step 4" in output, "there is a checkpoint after each epoch"
    assert all(torch.equal(resumed[name], value) for name, value in model.items())
    assert epochs(parts) == epochs(whole)


def test_a_queue_that_cannot_hold_a_step_is_refused_with_its_numbers(
    tmp_path: Path, data: Path, forks: Sequence[ForkServer]
) -> None:
    with Launcher(tmp_path, forks=forks) as launcher:
        [process] = launcher.start_group(
            1,
            *("-m", "image_classification.embed"),
            PYTHONPATH=f"{ROOT}:{ROOT / 'trainer_images'}",
            TRAINING_DATA_URI=str(data),
            MODEL_URI=str(tmp_path / "model"),
            QUEUE="63",
        )
        end = end_of(process)
    assert end.code == 1
    assert end.stderr == (
        "error: QUEUE is 63, but must be 0 or at least the images of a step: "
        "BATCH_SIZE 64 x 1 processes = 64\n"
    )


def test_the_encoder_of_the_keys_follows_and_learns_nothing_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WIDTH": "2", "QUEUE": "8", "KEY_MOMENTUM": "0.5"}.items():
        monkeypatch.setenv(name, value)
    learner = Learner(1, Parameters.from_environment())
    assert learner.key_encoder is not None
    own, learned = (next(iter(each.parameters())) for each in (learner.key_encoder, learner.encoder))
    before = own.clone()
    images = torch.randn(4, 1, 8, 8)
    torch.autograd.backward(learner.loss(learner.encoder, images, images.flip(-1)))
    assert all(each.grad is None for each in learner.key_encoder.parameters())
    with torch.no_grad():
        learned.add_(1)
    learner.follow()
    torch.testing.assert_close(own, before + 0.5)


def test_an_image_counts_if_its_features_are_nearest_to_the_mean_of_its_class() -> None:
    axes = torch.eye(3)
    images = Images(axes[[0, 0, 1, 2]], torch.tensor([0, 0, 1, 2]))
    test = Images(axes[[0, 1, 2, 2]] + 0.1, torch.tensor([0, 1, 2, 0]))
    alone = Group(0, 1, torch.device("cpu"))
    assert class_accuracy(nn.Identity(), images, test, alone) == 0.75


def test_the_noise_of_an_image_depends_on_the_epoch_and_the_image_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"PADDING": "1", "NOISE": "0.5"}.items():
        monkeypatch.setenv(name, value)
    parameters = Parameters.from_environment()
    images, numbers = torch.zeros(4, 1, 3, 3), torch.tensor([5, 1, 7, 2])
    first, second = (Copies(9, parameters, 1, number) for number in (0, 1))
    seen = first(images, numbers)
    assert torch.equal(first(images[:2], numbers[2:]), seen[2:])
    assert not torch.equal(second(images, numbers), seen)
    assert not torch.equal(Copies(9, parameters, 2, 0)(images, numbers), seen)
    many = torch.cat([Copies(9, parameters, epoch, 0)(images, numbers) for epoch in range(50)])
    assert float(many.std()) == pytest.approx(0.5, rel=0.1)

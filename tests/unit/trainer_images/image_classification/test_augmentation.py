"""Crops and mirror images depend on the seed, the epoch and the example alone."""

import torch
from image_classification.augmentation import Augmentation
from torch import Tensor
from torch.nn.functional import pad

IMAGES = torch.arange(6 * 2 * 4 * 5, dtype=torch.float32).view(6, 2, 4, 5) + 1
ALL = torch.arange(6)


def changed(numbers: Tensor = ALL, *, epoch: int = 1, padding: int = 2, flip: bool = True) -> Tensor:
    augmentation = Augmentation(len(IMAGES), seed=1, epoch=epoch, padding=padding, flip=flip)
    return augmentation(IMAGES[numbers], numbers)


def test_each_image_is_a_shifted_or_mirrored_one() -> None:
    shifts = set()
    for before, after in zip(IMAGES, changed(), strict=True):
        padded = {flips: pad(before.flip(-1) if flips else before, (2, 2, 2, 2)) for flips in (False, True)}
        [found] = [
            (row, column, flips)
            for row in range(5)
            for column in range(5)
            for flips in (False, True)
            if torch.equal(padded[flips][:, row : row + 4, column : column + 5], after)
        ]
        shifts.add(found)
    assert len(shifts) > 3
    assert {flips for *_, flips in shifts} == {False, True}


def test_an_image_is_changed_alike_in_any_batch() -> None:
    some = torch.tensor([4, 1])
    assert torch.equal(changed(some), changed()[some])


def test_another_epoch_changes_it_in_another_way() -> None:
    assert not torch.equal(changed(epoch=2), changed())
    assert torch.equal(changed(epoch=2), changed(epoch=2))


def test_without_padding_and_flips_nothing_changes() -> None:
    assert torch.equal(changed(padding=0, flip=False), IMAGES)

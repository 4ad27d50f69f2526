"""The validation loss of a model."""

import pytest
import torch
from language_model import train
from language_model.assembly import assemble
from language_model.corpus import BLOCK
from language_model.layout import Layout
from trainer_kit.group import Group

ALONE = Group(rank=0, size=1, device=torch.device("cpu"))


def validation_loss(batch_size: int) -> float:
    layout = Layout(layers=1, width=16, context=32, batch_size=batch_size)
    chance = torch.Generator().manual_seed(1)
    blocks = torch.randint(256, (4, BLOCK), generator=chance, dtype=torch.uint8)
    return train.judge(assemble(layout, ALONE), layout, blocks, ALONE)


@pytest.mark.parametrize("batch_size", [8, 64])
def test_the_validation_loss_is_of_the_same_examples_for_each_batch_size(batch_size: int) -> None:
    assert validation_loss(batch_size) == pytest.approx(validation_loss(32), abs=1e-6)

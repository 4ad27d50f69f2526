"""The steps of an epoch, and the messages for too few examples."""

import pytest
import torch
from trainer_kit.errors import DataError
from trainer_kit.group import Group
from trainer_kit.sampling import steps_of_epoch

GROUP = Group(0, 3, torch.device("cpu"))


def test_an_incomplete_last_step_is_dropped() -> None:
    assert [steps_of_epoch(count, "images", 4, GROUP) for count in (12, 23, 24)] == [1, 1, 2]


@pytest.mark.parametrize(
    ("count", "remedy"), [(53, "lower BATCH_SIZE to at most 17"), (2, "use at most 2 processes")]
)
def test_too_few_examples_are_refused_with_a_remedy_that_is_possible(count: int, remedy: str) -> None:
    with pytest.raises(DataError) as refused:
        steps_of_epoch(count, "images", 18, GROUP)
    assert str(refused.value) == (
        f"{count} images do not fill one step: 3 processes x BATCH_SIZE 18 = 54; {remedy}"
    )

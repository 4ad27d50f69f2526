"""Every value that a space draws or enumerates is allowed."""

import math
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_service.client.sweeps.space import Choices, Range

numbers = st.integers(-1000, 1000) | st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 3))


@st.composite
def ranges(draw: st.DrawFn) -> Range:
    low, high = sorted(draw(st.lists(numbers, min_size=2, max_size=2, unique=True)))
    if low > 0 and draw(st.booleans()):
        return Range(low=low, high=high, log=True)
    whole = isinstance(low, int) and isinstance(high, int)
    step: Any = None
    if draw(st.booleans()):
        parts = draw(st.integers(1, 50))
        step = max(1, (high - low) // parts) if whole else round((high - low) / parts, 6) or None
    if step is not None and not 0 < step <= high - low:
        step = None
    return Range(low=low, high=high, step=step)


@given(ranges(), st.integers())
def test_draws_are_in_the_range_and_on_a_step(axis: Range, seed: int) -> None:
    value = axis.sample(Random(seed))
    assert isinstance(value, int if axis.is_whole else float)
    assert axis.low <= value <= axis.high
    if axis.step is not None:
        steps = (value - axis.low) / axis.step
        assert math.isclose(steps, round(steps), abs_tol=1e-6)


@given(ranges().filter(lambda axis: axis.step is not None))
def test_a_grid_goes_from_low_to_the_last_step_before_high(axis: Range) -> None:
    values = axis.grid()
    assert values[0] == axis.low
    assert values[-1] == axis.last
    assert axis.high - float(values[-1]) < float(axis.step or 0)
    assert len(set(values)) == len(values)


@given(ranges())
def test_a_range_survives_a_round_trip_through_json(axis: Range) -> None:
    again = Range.model_validate_json(axis.model_dump_json())
    assert again == axis
    assert again.is_whole == axis.is_whole


def test_steps_are_added_as_decimal_numbers() -> None:
    assert list(Range(low=0.1, high=0.4, step=0.1).grid()) == [0.1, 0.2, 0.3, 0.4]
    assert list(Range(low=16, high=70, step=16).grid()) == [16, 32, 48, 64]
    assert list(Range(low=1, high=3).grid()) == [1, 2, 3]


def test_logarithmic_draws_are_uniform_over_powers_of_ten() -> None:
    random = Random(7)
    drawn = [Range(low=0.001, high=1.0, log=True).sample(random) for _ in range(3000)]
    for low in (0.001, 0.01, 0.1):
        assert 900 < sum(low <= float(value) < low * 10 for value in drawn) < 1100


def test_both_ends_of_integers_are_drawn() -> None:
    random = Random(7)
    for log in (False, True):
        assert {Range(low=1, high=3, log=log).sample(random) for _ in range(200)} == {1, 2, 3}


@pytest.mark.parametrize("choices", [(1, "1"), (0.5, 0.5), (True, "true"), ("", "")])
def test_choices_with_the_same_text_are_refused(choices: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="is given twice"):
        Choices(choices=choices)

"""Parameters of algorithms. More about their values: tests/security/test_parameters.py."""

from typing import Any

import pytest

from job_tracker.catalog import Parameter
from job_tracker.domain.errors import InvalidField


def test_the_allowed_values_are_on_one_line() -> None:
    with pytest.raises(InvalidField, match=r"^x: 'c' is not allowed; allowed: a\\nb, d$"):
        Parameter(choices=("a\nb", "d")).check("x", "c")


@pytest.mark.parametrize(
    "bounds",
    [
        {"minimum": 2, "maximum": 1},
        {"exclusive_minimum": 1, "maximum": 1},
        {"minimum": 0, "exclusive_minimum": 3, "maximum": 2},
    ],
)
def test_bounds_that_allow_no_number_are_refused(bounds: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="allow no number; raise the maximum"):
        Parameter(type="int", **bounds)


def test_bounds_may_allow_one_number() -> None:
    Parameter(type="int", minimum=2, maximum=2).check("x", "2")

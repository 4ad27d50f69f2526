"""Parameters of algorithms. More about their values: tests/security/test_parameters.py."""

import pytest

from job_tracker.catalog import Parameter
from job_tracker.domain.errors import InvalidField


def test_the_allowed_values_are_on_one_line() -> None:
    with pytest.raises(InvalidField, match=r"^x: 'c' is not allowed; allowed: a\\nb, d$"):
        Parameter(choices=("a\nb", "d")).check("x", "c")

"""Typed values from environment variables; every error names the variable and what it must be."""

import math
import os
import reprlib
from typing import TypeVar

from trainer_kit.errors import ParameterError

T = TypeVar("T")


def text(name: str, default: str | None = None) -> str:
    """The variable `name`, or `default` where it is unset or empty; without a default it is required."""
    return os.environ.get(name) or _or_complain(name, default)


def integer(name: str, default: int | None = None, *, at_least: int, at_most: int) -> int:
    """The variable `name` as a whole number from `at_least` to `at_most`, or `default` where it is unset."""
    given = os.environ.get(name)
    if given is None:
        return _or_complain(name, default)
    try:
        value = int(given)
    except ValueError:
        value = at_least - 1
    if not at_least <= value <= at_most:
        raise ParameterError(
            f"{name} must be a whole number from {at_least} to {at_most}, but is {reprlib.repr(given)}"
        )
    return value


def positive_number(name: str, default: float | None = None) -> float:
    """The variable `name` as a finite number above 0, or `default` where it is unset."""
    given = os.environ.get(name)
    if given is None:
        return _or_complain(name, default)
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not (value > 0 and math.isfinite(value)):
        raise ParameterError(f"{name} must be a finite number above 0, but is {reprlib.repr(given)}")
    return value


def _or_complain(name: str, default: T | None) -> T:
    if default is None:
        raise ParameterError(f"{name} is not set")
    return default

"""Typed values of environment variables.

An error names the variable. If the value is invalid, the error also states the allowed values.
"""

import json
import math
import os
import reprlib
from enum import StrEnum
from typing import TypeVar

from trainer_kit.errors import ParameterError

FREE_PARAMETERS = "TRAINING_PARAMETERS"

T = TypeVar("T")
C = TypeVar("C", bound=StrEnum)


def text(name: str, default: str | None = None) -> str:
    """Return the variable, or `default` if it is unset or empty. Without a default, it must be set."""
    return os.environ.get(name) or _required(name, default)


def integer(name: str, default: int | None = None, *, at_least: int, at_most: int) -> int:
    """Return the variable as an integer from `at_least` to `at_most`, or `default` if it is unset."""
    given = os.environ.get(name)
    if given is None:
        return _required(name, default)
    try:
        value = int(given)
    except ValueError:
        value = at_least - 1
    if not at_least <= value <= at_most:
        raise ParameterError(
            f"{name} must be a whole number from {at_least} to {at_most}, but is {reprlib.repr(given)}"
        )
    return value


def integers(name: str, *, at_least: int, at_most: int) -> tuple[int, ...]:
    """Return the variable as integers separated by commas; no integers if it is unset or empty."""
    given = os.environ.get(name)
    try:
        values = tuple(int(part) for part in given.split(",")) if given else ()
    except ValueError:
        values = (at_least - 1,)
    if not all(at_least <= value <= at_most for value in values):
        raise ParameterError(
            f"{name} must be whole numbers from {at_least} to {at_most}, separated by commas, "
            f"but is {reprlib.repr(given)}"
        )
    return values


def positive_number(name: str, default: float | None = None, *, above: float = 0) -> float:
    """Return the variable as a finite number greater than `above`, or `default` if it is unset."""
    given = os.environ.get(name)
    if given is None:
        return _required(name, default)
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not (value > above and math.isfinite(value)):
        raise ParameterError(f"{name} must be a finite number above {above}, but is {reprlib.repr(given)}")
    return value


def fraction(name: str, default: float | None = None) -> float:
    """Return the variable as a number from 0 to below 1, or `default` if it is unset."""
    given = os.environ.get(name)
    if given is None:
        return _required(name, default)
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        raise ParameterError(f"{name} must be a number from 0 to below 1, but is {reprlib.repr(given)}")
    return value


def choice(name: str, kind: type[C], default: C) -> C:
    """Return the variable as a member of `kind`, or `default` if it is unset."""
    given = os.environ.get(name)
    if given is None:
        return default
    try:
        return kind(given)
    except ValueError as error:
        raise ParameterError(
            f"{name} must be one of {', '.join(kind)}, but is {reprlib.repr(given)}"
        ) from error


def flag(name: str, default: bool) -> bool:
    """Return the variable as true (`true`, `1`) or false (`false`, `0`), or `default` if it is unset."""
    given = os.environ.get(name)
    if given is None:
        return default
    if given not in ("true", "1", "false", "0"):
        raise ParameterError(f"{name} must be true, false, 1 or 0, but is {reprlib.repr(given)}")
    return given in ("true", "1")


def free_parameters() -> dict[str, str]:
    """Return the undeclared parameters by name: the JSON object in TRAINING_PARAMETERS.

    Only an algorithm with the setting `free_parameters` has any.
    """
    given = os.environ.get(FREE_PARAMETERS) or "{}"
    try:
        values = json.loads(given)
    except ValueError:
        values = None
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise ParameterError(
            f"{FREE_PARAMETERS} must be a JSON object whose values are strings, but is {reprlib.repr(given)}"
        )
    return values


def _required(name: str, default: T | None) -> T:
    if default is None:
        raise ParameterError(f"{name} is not set")
    return default

"""Parameters of algorithms, and the check of their values."""

import math
import re
from typing import Literal

from pydantic import Field, model_validator

from job_tracker.common.config import Config
from job_tracker.common.printable import printable, quoted
from job_tracker.domain.errors import InvalidField

INSTANCES_PARAMETER = "PARALLEL_INSTANCES"
PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_MAX_VALUE_LENGTH = 4096


class Parameter(Config):
    """A parameter of an algorithm, and its allowed values."""

    type: Literal["int", "float", "bool", "str"] = Field(
        default="str", description="Type of the value. A `bool` is true, false, 1 or 0."
    )
    default: str | None = Field(
        default=None, description="Value if the request sends none. Unset: the variable is not set."
    )
    minimum: float | None = Field(default=None, description="Smallest allowed number. Unset: no bound.")
    maximum: float | None = Field(default=None, description="Largest allowed number. Unset: no bound.")
    exclusive_minimum: float | None = Field(
        default=None, description="Bound that the number must exceed. Unset: no bound."
    )
    choices: tuple[str, ...] = Field(
        default=(), description="The allowed values. Empty: any value of the type."
    )
    description: str = Field(default="", description="Text for users, shown in the list of algorithms.")

    @model_validator(mode="after")
    def _some_number_is_allowed(self) -> "Parameter":
        lowest = max(
            (each for each in (self.minimum, self.exclusive_minimum) if each is not None), default=None
        )
        if lowest is not None and self.maximum is not None:
            is_open = self.exclusive_minimum is not None and self.exclusive_minimum >= lowest
            if lowest > self.maximum or (is_open and lowest == self.maximum):
                name = "exclusive_minimum" if is_open else "minimum"
                raise ValueError(
                    f"{name} {lowest:.15g} and maximum {self.maximum:.15g} allow no number; raise the maximum"
                )
        return self

    @model_validator(mode="after")
    def _default_is_allowed(self) -> "Parameter":
        if self.default is not None:
            try:
                self.check("default", self.default)
            except InvalidField as error:
                raise ValueError(str(error)) from error
        return self

    def check(self, field: str, value: str, reason: str = "") -> None:
        """Raise InvalidField for `field` if the value is not allowed.

        `reason` says in the message where the maximum comes from.
        """
        if len(value) > _MAX_VALUE_LENGTH:
            raise InvalidField(
                field, f"the value has {len(value)} characters; at most {_MAX_VALUE_LENGTH} are allowed"
            )
        if not value.isprintable():
            raise InvalidField(
                field, f"{quoted(value)} is not allowed: it contains control characters or line breaks"
            )
        if self.choices and value not in self.choices:
            allowed = printable(", ".join(self.choices))
            raise InvalidField(field, f"{quoted(value)} is not allowed; allowed: {allowed}")
        if not self._is_of_type(value):
            raise InvalidField(field, f"{quoted(value)} is not {self._allowed(reason)}")

    def _is_of_type(self, value: str) -> bool:
        match self.type:
            case "str":
                return True
            case "bool":
                return value in ("true", "false", "0", "1")
            case "int":
                return bool(re.fullmatch(r"[+-]?[0-9]{1,18}", value)) and self._in_range(int(value))
            case "float":
                number = _finite(value)
                return number is not None and self._in_range(number)

    def _in_range(self, number: float) -> bool:
        return (
            (self.minimum is None or number >= self.minimum)
            and (self.maximum is None or number <= self.maximum)
            and (self.exclusive_minimum is None or number > self.exclusive_minimum)
        )

    def _allowed(self, reason: str) -> str:
        kind = {"int": "a whole number", "float": "a number", "bool": "true, false, 1 or 0", "str": "text"}
        bounds = [
            f"{word} {bound:.15g}"
            for word, bound in (
                ("of at least", self.minimum),
                ("greater than", self.exclusive_minimum),
                ("of at most", self.maximum),
            )
            if bound is not None
        ]
        because = f" ({reason})" if reason else ""
        return " ".join([kind[self.type], " and ".join(bounds)]).rstrip() + because


def _finite(text: str) -> float | None:
    # float() alone is not enough: it accepts "nan", and also "1_000" and spaces, which many parsers of other
    # languages refuse.
    if len(text) > 64 or not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None

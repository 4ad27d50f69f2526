"""The values that parameters of an algorithm may take."""

import math
import re
from typing import Literal

from pydantic import Field, model_validator

from job_tracker.common.config import Config
from job_tracker.common.printable import quoted
from job_tracker.domain.errors import InvalidField

INSTANCES_PARAMETER = "PARALLEL_INSTANCES"
PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_MAX_VALUE_LENGTH = 4096


class Parameter(Config):
    """What values one parameter of an algorithm may take."""

    type: Literal["int", "float", "bool", "str"] = "str"
    default: str | None = Field(
        default=None, description="the value when a request sends none; none: it stays unset"
    )
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: float | None = Field(default=None, description="the value must be greater than this")
    choices: tuple[str, ...] = Field(default=(), description="if given, the value is one of these")
    description: str = ""

    @model_validator(mode="after")
    def _default_is_allowed(self) -> "Parameter":
        if self.default is not None:
            try:
                self.check("default", self.default)
            except InvalidField as error:
                raise ValueError(str(error)) from error
        return self

    def check(self, field: str, value: str) -> None:
        """Raise InvalidField, naming `field` and what is allowed, unless `value` is allowed."""
        if len(value) > _MAX_VALUE_LENGTH:
            raise InvalidField(field, f"has {len(value)} characters; at most {_MAX_VALUE_LENGTH} are allowed")
        if not value.isprintable():
            raise InvalidField(
                field, f"{quoted(value)} has control characters or line breaks, which are not allowed"
            )
        if self.choices and value not in self.choices:
            raise InvalidField(
                field, f"{quoted(value)} is not allowed; allowed are {', '.join(self.choices)}"
            )
        if not self._is_of_type(value):
            raise InvalidField(field, f"{quoted(value)} is not {self._allowed()}")

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

    def _allowed(self) -> str:
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
        return " ".join([kind[self.type], " and ".join(bounds)]).rstrip()


def _finite(text: str) -> float | None:
    # Not float() alone: it takes "nan", "1_000" and blanks, which other languages' parsers do not.
    if len(text) > 64 or not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None

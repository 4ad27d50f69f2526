"""The values of a searched parameter: choices or a range."""

import math
from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from training_service.client.requests import as_text


def _plain(value: Any) -> Any:
    if not isinstance(value, bool | int | float | str) or not _is_finite(value):
        raise ValueError("it must be text, a finite number, true or false")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        raise ValueError("it must be a finite number")
    return value


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


Value = Annotated[bool | int | float | str, BeforeValidator(_plain)]
Number = Annotated[int | float, BeforeValidator(_number)]


class Choices(BaseModel):
    """A list of values."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    choices: Annotated[tuple[Value, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        texts = [as_text(value) for value in self.choices]
        twice = next((text for text in texts if texts.count(text) > 1), None)
        if twice is not None:
            raise ValueError(f"the choice {twice!r} is given twice")
        return self

    def sample(self, random: Random) -> Value:
        """Draw a value uniformly."""
        return random.choice(self.choices)

    def grid(self) -> Sequence[Value]:
        """Return all values."""
        return self.choices


class Range(BaseModel):
    """The numbers from `low` to `high`, both included.

    They are integers if `low` and `high` are integers, and `step` is an integer or not set.

    With `log`, the logarithm of the value is drawn uniformly. With `step`, the values are `low` plus
    multiples of `step`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    low: Number
    high: Number
    log: bool = False
    step: Number | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")
        if self.low == self.high:
            raise ValueError(f"low and high are both {self.low}: make this a fixed parameter")
        if self.log and self.low <= 0:
            raise ValueError(f"low is {self.low}; with log, it must be above 0")
        if self.step is not None:
            if self.log:
                raise ValueError("give either log or step, not both")
            if not 0 < self.step <= self.high - self.low:
                raise ValueError(f"step is {self.step}; it must be above 0 and at most high - low")
        return self

    @property
    def is_whole(self) -> bool:
        """Whether the values are integers."""
        return all(isinstance(number, int) for number in (self.low, self.high, self.step or 1))

    @property
    def last(self) -> float:
        """The highest value, which is below `high` if the steps do not reach it."""
        return self.high if self.step is None else self._after(self._steps)

    def sample(self, random: Random) -> Value:
        """Draw a value uniformly; with `log`, its logarithm is drawn uniformly."""
        if self.step is not None:
            return self._after(random.randint(0, self._steps))
        if not self.log:
            return (
                random.randint(int(self.low), int(self.high))
                if self.is_whole
                else random.uniform(self.low, self.high)
            )
        # Whole numbers are drawn as real numbers and then rounded. Without the margin, the lowest and the
        # highest number would be drawn too rarely.
        margin = 0.5 if self.is_whole else 0.0
        drawn = math.exp(random.uniform(math.log(self.low - margin), math.log(self.high + margin)))
        within = min(max(drawn, self.low), self.high)
        return round(within) if self.is_whole else within

    def grid(self) -> Sequence[Value]:
        """Return all values. Raises ValueError for a range with `log`, or for real numbers without `step`."""
        if self.step is not None:
            return [self._after(steps) for steps in range(self._steps + 1)]
        if self.is_whole and not self.log:
            return range(int(self.low), int(self.high) + 1)
        raise ValueError("the method grid needs choices or a range with a step")

    @property
    def _steps(self) -> int:
        return int((_exact(self.high) - _exact(self.low)) / _exact(self.step or 1))

    def _after(self, steps: int) -> float:
        """Return `low` plus this many steps in decimal arithmetic: 0.1 plus two steps of 0.1 is 0.3."""
        value = _exact(self.low) + steps * _exact(self.step or 1)
        return int(value) if self.is_whole else float(value)


def _exact(number: float) -> Decimal:
    return Decimal(str(number))


def _as_table(value: Any) -> Any:
    return {"choices": value} if isinstance(value, list | tuple) else value


def _kind(value: Any) -> str:
    table = value if isinstance(value, dict) else dict(value) if isinstance(value, BaseModel) else {}
    return "choices" if "choices" in table else "range"


# A list is short for a table with `choices`.
Axis = Annotated[
    Annotated[Choices, Tag("choices")] | Annotated[Range, Tag("range")],
    Discriminator(_kind),
    BeforeValidator(_as_table),
]

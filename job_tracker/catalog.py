"""What may run and what there is to train on: algorithms and datasets, as configuration names them."""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from job_tracker.environment import is_reserved
from job_tracker.errors import InvalidField
from job_tracker.frameworks import FRAMEWORKS

INSTANCES_PARAMETER = "PARALLEL_INSTANCES"
PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_MAX_VALUE_LENGTH = 4096


def shown(text: str) -> str:
    """The text as a message quotes it: escaped, so that it stays on its line, and not without end."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


class _Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Parameter(_Config):
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
                field, f"{shown(value)} has control characters or line breaks, which are not allowed"
            )
        if self.choices and value not in self.choices:
            raise InvalidField(field, f"{shown(value)} is not allowed; allowed are {', '.join(self.choices)}")
        if not self._is_of_type(value):
            raise InvalidField(field, f"{shown(value)} is not {self._allowed()}")

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


class ProcessRecipe(_Config):
    """How an algorithm runs as plain processes."""

    command: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        min_length=1, description="the program, looked up on the processes' PATH, and its arguments; no shell"
    )
    memory_limit_bytes: int | None = Field(
        default=None, ge=1 << 20, description="how much private memory one process may allocate"
    )


def _parameter_name(name: str) -> str:
    if not PARAMETER_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a name for an environment variable")
    if is_reserved(name) or name == INSTANCES_PARAMETER:
        raise ValueError(f"{name!r} is a reserved name, set by the service")
    return name


def _framework_name(name: str) -> str:
    if name not in FRAMEWORKS:
        raise ValueError(f"{name!r} is not known; allowed are {', '.join(sorted(FRAMEWORKS))}")
    return name


class Algorithm(_Config):
    """Training code that may be run: its framework, its parameters, and how each backend runs it."""

    description: str = ""
    framework: Annotated[str, AfterValidator(_framework_name)] = "pytorch"
    parameters: dict[Annotated[str, AfterValidator(_parameter_name)], Parameter] = {}
    other_parameters: bool = Field(
        default=False, description="whether parameters that are not listed are passed on as well, as text"
    )
    max_instances: int | None = Field(default=None, ge=1, description="the most instances a job may have")
    environment: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str] = Field(
        default={}, description="variables set for every process; nothing secret"
    )
    process: ProcessRecipe | None = None

    def resolve(self, sent: Mapping[str, str]) -> dict[str, str]:
        """The parameters that the processes get: those sent, checked, and the defaults of the others.

        Raises InvalidField with the name of the first parameter that is not allowed.
        """
        for name, value in sent.items():
            field = f"parameters.{shown(name)[1:-1]}"
            if not PARAMETER_NAME.fullmatch(name):
                raise InvalidField(
                    field, "a parameter's name has letters, digits and _, no digit first, 128 at most"
                )
            if is_reserved(name) or (name in self.environment and name not in self.parameters):
                raise InvalidField(field, "is a reserved name: it is set by the service")
            if name != INSTANCES_PARAMETER:
                self._parameter(name, field).check(field, value)
        defaults = {n: p.default for n, p in self.parameters.items() if p.default is not None}
        return {**defaults, **sent}

    def _parameter(self, name: str, field: str) -> Parameter:
        if name in self.parameters:
            return self.parameters[name]
        if self.other_parameters:
            return Parameter()
        allowed = ", ".join([*self.parameters, INSTANCES_PARAMETER])
        raise InvalidField(field, f"is not a parameter of this algorithm; allowed are {allowed}")


class Dataset(_Config):
    """Where the versions of a dataset are."""

    uri: str = Field(
        description="folder of a version, an fsspec URI; {dataset_id} and {version} are filled in"
    )
    files: tuple[str, ...] = Field(
        default=("examples.csv", "labels.csv"),
        description="what a version must hold before a job may train on it",
    )

    @model_validator(mode="after")
    def _uri_can_be_filled_in(self) -> "Dataset":
        try:
            self.folder("1", "v")
        except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
            raise ValueError(
                f"uri: only {{dataset_id}} and {{version}} can be filled in ({error})"
            ) from error
        return self

    def folder(self, dataset_id: str, version: str) -> str:
        """The URI of one version's folder."""
        return self.uri.format(dataset_id=dataset_id, version=version)


def _finite(text: str) -> float | None:
    # Not float() alone: it takes "nan", "1_000" and blanks, which other languages' parsers do not.
    if len(text) > 64 or not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None

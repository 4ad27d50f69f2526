"""The settings of a sweep, checked before the first submission."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self

from google.protobuf import json_format
from google.protobuf.message import Message
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from job_tracker.common.validation import explain
from training_service._generated.training_service_pb2 import Deadlines, NumberPolicy, PodOptions, RetryPolicy
from training_service.client.errors import InvalidRequest
from training_service.client.requests import INSTANCES_PARAMETER
from training_service.client.sweeps.placements import ANY, PLACEMENT, parsed_placement
from training_service.client.sweeps.space import Axis, Value

MOST_TRIALS = 10_000

Text = Annotated[str, Field(min_length=1, max_length=128)]
_STRICT = ConfigDict(extra="forbid", frozen=True)


def _json_of(message: type[Message]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that checks a table: it returns the table, and raises ValueError if the table is not
    the JSON form of `message`.
    """

    def check(table: dict[str, Any]) -> dict[str, Any]:
        try:
            json_format.ParseDict(table, message())
        except json_format.ParseError as error:
            raise ValueError(str(error)) from error
        return table

    return check


class Objective(BaseModel):
    """The number to maximize or minimize.

    It is the last, the best or the median value of a reported metric, or a number in the file `manifest.json`
    of the model. In this file, the metric `a.b` is the key b in the table a.
    """

    model_config = _STRICT
    metric: Text
    direction: Literal["maximize", "minimize"]
    value: Literal["last", "best", "median", "manifest"] = "last"
    beside: tuple[Text, ...] = ()
    """Further metrics, whose medians are recorded with each complete trial."""
    last_beside: tuple[Text, ...] = ()
    """Further metrics, whose last values are recorded with each complete trial."""
    enough: Annotated[int, Field(ge=1, le=500)] | None = None
    """The number of values of the metric after which a job is cancelled and its trial is complete."""


class Pruning(BaseModel):
    """The settings of ASHA: at certain steps, the best 1/`reduction_factor` of the trials continue.

    The first of these steps is `min_steps`; each next one is `reduction_factor` times as large. The default
    of `min_steps` is a hundredth of the steps of the first complete trial. With the default, no trial is
    pruned before that trial is complete.
    """

    model_config = _STRICT
    min_steps: Annotated[int, Field(ge=1)] | None = None
    reduction_factor: Annotated[int, Field(ge=2)] = 4


class Sweep(BaseModel):
    """The settings of one sweep. They do not change after its start."""

    model_config = _STRICT
    algorithm: Text
    dataset: Text | Literal[""] = ""
    version: Text | Literal[""] = ""
    name: Annotated[str, Field(min_length=1, max_length=60)] = "sweep"
    instances: Annotated[int, Field(ge=1)] | None = None
    parameters: dict[str, Value] = {}
    per_instance: dict[str, Annotated[int, Field(ge=1)]] = {}
    """Parameters that are given for one instance, such as the batch. A trial multiplies them by its number of
    instances.
    """
    space: Annotated[dict[str, Axis], Field(min_length=1)]
    objective: Objective
    method: Literal["grid", "random", "tpe"] = "random"
    trials: Annotated[int, Field(ge=1, le=MOST_TRIALS)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    at_once: Annotated[int, Field(ge=1, le=1000)] = 4
    max_failures: Annotated[int, Field(ge=1)] = 10
    pruning: (
        Annotated[
            Annotated[bool, Tag("flag")] | Annotated[Pruning, Tag("table")],
            Discriminator(lambda value: "flag" if isinstance(value, bool) else "table"),
        ]
        | None
    ) = None
    pod_options: Annotated[dict[str, Any], AfterValidator(_json_of(PodOptions))] = {}
    retry_policy: Annotated[dict[str, Any], AfterValidator(_json_of(RetryPolicy))] = {}
    deadlines: Annotated[dict[str, Any], AfterValidator(_json_of(Deadlines))] = {}
    number_policy: Annotated[dict[str, Any], AfterValidator(_json_of(NumberPolicy))] = {}
    queue: str = ""
    priority: str = ""
    expected: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """The seconds that each job is expected to run."""
    flavor: str = ""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if both := sorted(self.parameters.keys() & self.space.keys()):
            raise ValueError(f"{both[0]} is in both parameters and space; remove it from one of them")
        if both := sorted(self.per_instance.keys() & {*self.parameters, *self.space, INSTANCES_PARAMETER}):
            raise ValueError(
                f"{both[0]} is in per_instance and in parameters or space; remove it from one of them"
            )
        if self.instances is not None and INSTANCES_PARAMETER in {*self.parameters, *self.space}:
            raise ValueError(f"give either instances or {INSTANCES_PARAMETER}, not both")
        if self.objective.value == "manifest" and self.pruning:
            raise ValueError("pruning needs a reported metric: objective.value must not be 'manifest'")
        if self.objective.enough and (self.asha or self.objective.value == "manifest"):
            raise ValueError("objective.enough needs a reported metric and no pruning: remove one of them")
        if PLACEMENT in self.space:
            self._check_placements(self.space[PLACEMENT])
        if self.method == "grid":
            self._check_grid()
        elif self.trials is None:
            raise ValueError(f"trials is missing: the method {self.method} needs the number of trials")
        return self

    def _check_placements(self, axis: Axis) -> None:
        if "placement" in self.pod_options:
            raise ValueError(f"space.{PLACEMENT}: pod_options has a placement, too; remove one of them")
        try:
            for value in axis.grid():
                parsed_placement(str(value))
        except ValueError as error:
            raise ValueError(f"space.{PLACEMENT}: {error}") from error

    def _check_grid(self) -> None:
        if self.trials is not None:
            raise ValueError("the method grid makes one trial per combination: remove the setting trials")
        size = 1
        for name, axis in self.space.items():
            try:
                size *= len(axis.grid())
            except ValueError as error:
                raise ValueError(f"space.{name}: {error}") from error
        if size > MOST_TRIALS:
            raise ValueError(f"the grid has {size} combinations; at most {MOST_TRIALS} are allowed")

    def parameters_of(self, searched: Mapping[str, Value]) -> dict[str, Value]:
        """Return all parameters of a trial."""
        count = int(searched.get(INSTANCES_PARAMETER, self.instances or 1))
        scaled = {name: value * count for name, value in self.per_instance.items()}
        sent = {name: value for name, value in searched.items() if name != PLACEMENT}
        return {**self.parameters, **scaled, **sent}

    def pod_options_of(self, searched: Mapping[str, Value]) -> dict[str, Any]:
        """Return the pod options of a trial."""
        placement = parsed_placement(str(searched.get(PLACEMENT, ANY)))
        return {**self.pod_options, **({PLACEMENT: placement} if placement else {})}

    @property
    def asha(self) -> Pruning | None:
        """The settings of pruning, or None for no pruning.

        TPE prunes by default, unless the objective is in the model's `manifest.json`.
        """
        if isinstance(self.pruning, Pruning):
            return self.pruning
        by_default = self.method == "tpe" and self.objective.value != "manifest"
        return Pruning() if (by_default if self.pruning is None else self.pruning) else None


def checked(document: Mapping[str, Any]) -> Sweep:
    """Return the sweep that a parsed TOML document describes.

    Raises InvalidRequest if the document is not valid. For each problem, the message has the key, the value
    and the allowed values.
    """
    try:
        return Sweep.model_validate(document)
    except ValidationError as error:
        raise InvalidRequest(explain(error, Sweep)) from error

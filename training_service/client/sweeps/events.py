"""The events of a sweep, stored as one JSON object per line."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from training_service.client.sweeps.space import Value

Outcome = Literal["complete", "pruned", "failed", "cancelled"]


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Proposed(_Event):
    """A trial is about to be submitted: from now on, its job may exist."""

    event: Literal["proposed"] = "proposed"
    trial: int
    parameters: dict[str, Value]


class Refused(_Event):
    """The service has refused the trial, for a reason that applies to all trials. The trial has no job."""

    event: Literal["refused"] = "refused"
    trial: int
    reason: str


class Submitted(_Event):
    """The service has accepted the trial's job."""

    event: Literal["submitted"] = "submitted"
    trial: int
    job: int


class Reported(_Event):
    """The job has reported new values of the metric, by step.

    With `prune`, the job is cancelled: the values were too poor to continue, or there were enough of them
    (`Objective.enough`; `points` is then empty).
    """

    event: Literal["reported"] = "reported"
    trial: int
    points: tuple[tuple[int, float], ...]
    prune: bool


class Ended(_Event):
    """The trial has ended.

    A complete trial has its value, and the values of further metrics that its job has reported. A pruned
    trial has its last value and a reason. A failed trial has a reason. A cancelled trial has none of these.
    """

    event: Literal["ended"] = "ended"
    trial: int
    outcome: Outcome
    value: float | None = None
    reason: str = ""
    beside: dict[str, float] = Field(default_factory=dict)


class Cancelled(_Event):
    """The user has cancelled the sweep."""

    event: Literal["cancelled"] = "cancelled"


Event = Proposed | Refused | Submitted | Reported | Ended | Cancelled

EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])

"""What happens to a sweep, as it is written down: one JSON object a line."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from training_service.client.sweeps.space import Value

Outcome = Literal["complete", "pruned", "failed", "cancelled"]


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Proposed(_Event):
    """A trial is about to be submitted: from now on its job may exist."""

    event: Literal["proposed"] = "proposed"
    trial: int
    parameters: dict[str, Value]


class Refused(_Event):
    """The service refuses the trial for a reason that concerns all: there is no job."""

    event: Literal["refused"] = "refused"
    trial: int
    reason: str


class Submitted(_Event):
    """The service has a job for the trial."""

    event: Literal["submitted"] = "submitted"
    trial: int
    job: int


class Reported(_Event):
    """The job has reported values of the metric, by step; with `prune`, that was not enough to go on."""

    event: Literal["reported"] = "reported"
    trial: int
    points: tuple[tuple[int, float], ...]
    prune: bool


class Ended(_Event):
    """The trial is over: with a value if it is complete (or pruned, the last one), else with a reason."""

    event: Literal["ended"] = "ended"
    trial: int
    outcome: Outcome
    value: float | None = None
    reason: str = ""


class Cancelled(_Event):
    """The whole sweep is to end."""

    event: Literal["cancelled"] = "cancelled"


Event = Proposed | Refused | Submitted | Reported | Ended | Cancelled

EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])

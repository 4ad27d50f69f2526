"""The state of a sweep, built from its events."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from training_service.client.sweeps.events import (
    Cancelled,
    Ended,
    Event,
    Proposed,
    Refused,
    Reported,
    Submitted,
)
from training_service.client.sweeps.space import Value

State = Literal["proposed", "submitted", "pruning", "complete", "pruned", "failed", "cancelled"]
LIVE: frozenset[State] = frozenset({"proposed", "submitted", "pruning"})


@dataclass(frozen=True)
class Trial:
    """One choice of parameters and its state.

    proposed → submitted → complete
                         → pruning (its job is being cancelled) → pruned, or complete if the job succeeded
                           nevertheless, or had reported enough values (`Objective.enough`)

    In each of the states proposed, submitted and pruning, the trial may also become failed or cancelled.
    """

    number: int
    parameters: Mapping[str, Value]
    state: State = "proposed"
    job: int | None = None
    points: Sequence[tuple[int, float]] = ()
    """The values of the metric that the pruner has seen, by step."""
    value: float | None = None
    reason: str = ""
    beside: Mapping[str, float] = field(default_factory=dict)
    """Medians or last values of further metrics, by name."""

    @property
    def is_live(self) -> bool:
        """Whether the trial has not ended."""
        return self.state in LIVE

    def as_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(
            {
                "trial": self.number,
                "job_id": self.job,
                "state": self.state,
                "value": self.value,
                "parameters": dict(self.parameters),
                "reason": self.reason,
            }
        )


@dataclass
class History:
    """The state of a sweep."""

    trials: list[Trial] = field(default_factory=list)
    is_cancelled: bool = False
    refusals: int = 0
    """The number of trials that the service has refused."""

    def add(self, event: Event) -> None:
        """Apply an event."""
        match event:
            case Proposed():
                self.trials.append(Trial(event.trial, event.parameters))
            case Refused():
                del self.trials[event.trial :]
                self.refusals += 1
            case Submitted():
                self._change(event.trial, state="submitted", job=event.job)
            case Reported():
                points = (*self.trials[event.trial].points, *event.points)
                state: State = "pruning" if event.prune else self.trials[event.trial].state
                self._change(event.trial, points=points, state=state)
            case Ended():
                self.refusals += event.outcome == "failed" and self.trials[event.trial].job is None
                ending = {"state": event.outcome, "value": event.value, "reason": event.reason}
                self._change(event.trial, **ending, beside=event.beside)
            case Cancelled():
                self.is_cancelled = True

    @property
    def was_refused(self) -> bool:
        """Whether the service has refused trials, and no trial can have had a job."""
        may_have_job = any(
            trial.job is not None or trial.state in ("proposed", "cancelled") for trial in self.trials
        )
        return self.refusals > 0 and not may_have_job

    @property
    def live(self) -> list[Trial]:
        """The trials that have not ended."""
        return [trial for trial in self.trials if trial.is_live]

    @property
    def failures(self) -> int:
        """The number of failed trials."""
        return sum(trial.state == "failed" for trial in self.trials)

    def _change(self, number: int, **changes: object) -> None:
        self.trials[number] = replace(self.trials[number], **changes)  # type: ignore[arg-type]


def history_of(events: Iterable[Event]) -> History:
    """Build the state from events."""
    history = History()
    for event in events:
        history.add(event)
    return history


def ranked(trials: Iterable[Trial], *, highest_first: bool) -> list[Trial]:
    """Return the trials in this order: complete, pruned, live, and last the failed and cancelled ones.

    Complete trials are sorted by their values, the best first, and so are pruned trials.
    """
    order: dict[State, int] = {"complete": 0, "pruned": 1, "failed": 3, "cancelled": 3}

    def key(trial: Trial) -> tuple[int, float, int]:
        value = 0.0 if trial.value is None else -trial.value if highest_first else trial.value
        return order.get(trial.state, 2), value, trial.number

    return sorted(trials, key=key)

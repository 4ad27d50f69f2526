"""The outcome of a simulated job."""

from dataclasses import dataclass, field
from math import isfinite

from job_tracker.scheduling.model import INSTANCES, Preempt
from job_tracker.scheduling.simulation.attempts import Span
from job_tracker.scheduling.simulation.trace import TraceJob


@dataclass(slots=True)
class Record:
    """The outcome of a job. Times are seconds from the beginning of the simulation."""

    job: TraceJob
    started_at: float | None = None
    """The time at which the job first started."""
    spans: list[Span] = field(default_factory=list)
    """The job's attempts that are over."""
    stops: list[Preempt] = field(default_factory=list)
    """The stops of the job for other jobs, or to continue in another size."""
    evictions: int = 0
    """The number of times that machines of the job were taken away."""
    is_done: bool = False
    refused: str = ""
    first_promise: float | None = None
    """The first start that a reservation promised. None: no start was promised."""
    moves: list[str] = field(default_factory=list)
    """The reasons why the job's reservation was moved later, one for each move."""

    def promise(self, at: float) -> None:
        """Record a promised start if it is the first promise. An infinite time is no promise."""
        if self.first_promise is None and isfinite(at):
            self.first_promise = at

    @property
    def has_waited(self) -> bool:
        """Whether the job started within the simulation, not before it."""
        return self.started_at is not None and self.job.begun is None

    @property
    def waited(self) -> float:
        """The total seconds that the job waited before its attempts.

        Raises AssertionError if the job never started.
        """
        assert self.spans
        ends = (self.job.submitted_at, *(span.end for span in self.spans))
        return sum(span.begin - end for span, end in zip(self.spans, ends, strict=False))

    @property
    def ended_at(self) -> float:
        """The time at which the job's last attempt ended. Raises AssertionError if the job never started."""
        assert self.spans
        return self.spans[-1].end

    @property
    def lost(self) -> float:
        """The instance-seconds that stops have cost: see Span.lost."""
        return sum(span.lost * span.held.get(INSTANCES, 0) for span in self.spans)

"""The run times that policies know in a simulation."""

from typing import Protocol

from job_tracker.scheduling.model import Expected
from job_tracker.scheduling.simulation.trace import TraceJob


class Durations(Protocol):
    """Says how long jobs are expected to run."""

    def expected(self, job: TraceJob) -> Expected | None:
        """Return the run time that is expected now for a job. None: unknown."""
        ...

    def ended(self, job: TraceJob) -> None:
        """Learn from a job that has ended."""
        ...


class ExactDurations:
    """Knows the run time of each job."""

    def expected(self, job: TraceJob) -> Expected | None:
        """Return the real run time."""
        return Expected(median=job.run, high=job.run)

    def ended(self, job: TraceJob) -> None:
        """Learn nothing, since all run times are known."""


class SaidDurations(ExactDurations):
    """Knows the expected run time that is stated with each job."""

    def expected(self, job: TraceJob) -> Expected | None:
        """Return the stated time."""
        return job.said


class UnknownDurations(ExactDurations):
    """Knows no run time."""

    def expected(self, job: TraceJob) -> Expected | None:  # noqa: ARG002  # the protocol's signature
        """Return None."""
        return None

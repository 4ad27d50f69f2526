"""What training has told of itself."""

from collections.abc import Sequence
from typing import Protocol

from job_tracker.domain.telemetry import Artifact, AttemptReport, MetricSeries


class ReportStore(Protocol):
    """Keeps progress, metrics and the names of artifacts."""

    async def record_reports(self, reports: Sequence[AttemptReport]) -> Sequence[bool]:
        """Keep what attempts have reported. Says of each whether it was: it is not if the attempt is not
        the job's current one, or had ended before the report came.

        The last progress replaces the one before; points are added to their series (at most MOST_SERIES,
        thinned beyond MOST_POINTS); an artifact replaces one of its name. Need not be durable.
        """
        ...

    async def metrics(self, job_id: int) -> Sequence[MetricSeries]:
        """The series of a job, by name."""
        ...

    async def artifacts(self, job_id: int) -> Sequence[Artifact]:
        """What a job has made, by name."""
        ...

"""The protocol for the reports of training."""

from collections.abc import Collection, Sequence
from typing import Protocol

from job_tracker.domain.telemetry import Artifact, AttemptReport, MetricSeries


class ReportStore(Protocol):
    """Stores progress, metrics and artifacts."""

    async def record_reports(self, reports: Sequence[AttemptReport]) -> Sequence[bool]:
        """Store reports, and return for each report whether it was accepted.

        A report is refused if its attempt is not the job's current attempt, if the job waits for its next
        attempt, or if the job had ended before the report's time `at`.

        Progress replaces earlier progress. Points are added to their series; a series that would exceed
        MAX_POINTS points is thinned. An artifact replaces an artifact of the same name. A job has at most
        MAX_SERIES series and MAX_ARTIFACTS artifacts; further ones are dropped. The write need not be
        durable.
        """
        ...

    async def metric_names(self, job_id: int) -> Sequence[str]:
        """Return the names of the series of a job, sorted."""
        ...

    async def metrics(self, job_id: int, names: Collection[str] | None = None) -> Sequence[MetricSeries]:
        """Return the series of a job with these names, sorted by name. None: all series of the job."""
        ...

    async def artifacts(self, job_id: int) -> Sequence[Artifact]:
        """Return the artifacts of a job, sorted by name."""
        ...

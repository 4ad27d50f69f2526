"""What a process is told so that it can report."""

from collections.abc import Mapping
from dataclasses import dataclass

from job_tracker.model import Job
from job_tracker.reports.tokens import ReportTokens


@dataclass(slots=True)
class ReportEnvironment:
    """REPORT_ADDRESS and REPORT_TOKEN of a job's attempt; nothing without an address.

    The token stands in the plain environment. All that it is good for is to report on its own attempt,
    while the Secret that would hide it would take the right to read and write every Secret around.
    """

    tokens: ReportTokens
    address: str | None = None
    """HOST:PORT, as training processes reach this service."""

    def __call__(self, job: Job) -> Mapping[str, str]:
        """See environment.Telling."""
        if self.address is None:
            return {}
        token = self.tokens.issue(job.id, job.attempt)
        return {"REPORT_ADDRESS": self.address, "REPORT_TOKEN": token}

"""What a process is told so that it can report, and know its peers."""

from collections.abc import Mapping
from dataclasses import dataclass

from job_tracker.domain.job import Job
from job_tracker.reports.tokens import ReportTokens


@dataclass(slots=True)
class ReportEnvironment:
    """REPORT_ADDRESS and REPORT_TOKEN of a job's attempt, if there is an address; and GROUP_TOKEN.

    All that the one token is good for is to report on its own attempt, and the other to take part in it. They
    stand in the plain environment, unless a backend can hide them (`kubernetes.token_secrets`).
    """

    tokens: ReportTokens
    address: str | None = None
    """HOST:PORT, as training processes reach this service."""

    def __call__(self, job: Job) -> Mapping[str, str]:
        """See environment.ExtraEnvironment."""
        told = {"GROUP_TOKEN": self.tokens.group(job.id, job.attempt)}
        if self.address is not None:
            told["REPORT_ADDRESS"] = self.address
            told["REPORT_TOKEN"] = self.tokens.issue(job.id, job.attempt)
        return told

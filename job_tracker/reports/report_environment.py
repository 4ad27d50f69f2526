"""The environment variables with which a process can report and recognize its peers."""

from collections.abc import Mapping
from dataclasses import dataclass

from job_tracker.domain.job import Job
from job_tracker.reports.tokens import ReportTokens


@dataclass(slots=True)
class ReportEnvironment:
    """GROUP_TOKEN of a job's attempt, and REPORT_ADDRESS and REPORT_TOKEN if there is an address.

    REPORT_TOKEN allows nothing but reports on the attempt, and GROUP_TOKEN nothing but joining its group.
    They are plain variables, unless the backend can hide them (`kubernetes.token_secrets`).
    """

    tokens: ReportTokens
    address: str | None = None
    """HOST:PORT at which training processes reach this service."""

    def __call__(self, job: Job) -> Mapping[str, str]:
        """The variables of the job's current attempt; see ExtraEnvironment."""
        variables = {"GROUP_TOKEN": self.tokens.group(job.id, job.attempt)}
        if self.address is not None:
            variables["REPORT_ADDRESS"] = self.address
            variables["REPORT_TOKEN"] = self.tokens.issue(job.id, job.attempt)
        return variables

"""The environment variables with which a process can report and recognize its peers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from job_tracker.domain.job import Job
from job_tracker.reports.tokens import ReportTokens


@dataclass(slots=True)
class ReportEnvironment:
    """Makes GROUP_TOKEN and, if `address` is set, REPORT_ADDRESS, REPORT_TOKEN and REPORT_CA.

    With REPORT_TOKEN, a process can only report on its attempt and fetch the attempt's program. With
    GROUP_TOKEN, it can only join the attempt's group. By default, both tokens are plain variables;
    `kubernetes.token_secrets` puts them into a Secret.
    """

    tokens: ReportTokens
    address: str | None = None
    """HOST:PORT at which training processes reach this service."""
    ca: Callable[[], str] | None = None
    """Returns the certificate authorities with which ranks check the service's certificate, as PEM.

    The text `system` stands for the authorities that gRPC trusts by default. None: connections are not
    encrypted, and there is no REPORT_CA.
    """

    def __call__(self, job: Job) -> Mapping[str, str]:
        """Return the variables of the job's current attempt; see ExtraEnvironment."""
        variables = {"GROUP_TOKEN": self.tokens.group(job.id, job.attempt)}
        if self.address is not None:
            variables["REPORT_ADDRESS"] = self.address
            variables["REPORT_TOKEN"] = self.tokens.issue(job.id, job.attempt)
            if self.ca is not None:
                variables["REPORT_CA"] = self.ca()
        return variables

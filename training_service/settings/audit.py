"""Settings of the audit."""

from datetime import timedelta
from pathlib import Path

from pydantic import Field

from job_tracker.common.config import Config, Duration


class AuditSettings(Config):
    """The audit: who did what, who was denied what, and who read logs and artifacts. See docs/security.md."""

    keep: Duration = Field(
        default=timedelta(days=365),
        ge=timedelta(days=1),
        le=timedelta(days=36_500),
        description="Time for which audit events are kept in the job store.",
    )
    file: Path | None = Field(
        default=None,
        description="File to which this service appends all audit events, one JSON object per line. The file "
        "may be rotated at any time. Each replica needs its own file. Unset: no file.",
    )

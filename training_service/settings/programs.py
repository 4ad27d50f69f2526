"""Settings of uploaded programs."""

from datetime import timedelta

from pydantic import Field

from job_tracker.common.config import Config, Duration
from job_tracker.trees.manifest import TreeLimits


class ProgramSettings(Config):
    """Programs that callers upload and run, as with `trainctl run`. See docs/code.md."""

    enabled: bool | None = Field(
        default=None,
        description="Run uploaded programs: every caller with the role submitter can then run any code as a "
        "job. Unset: false if callers on other machines need no token or certificate (`server.insecure`), "
        "otherwise true.",
    )
    max_bytes: int = Field(
        default=1 << 30, ge=1, le=1 << 40, description="Largest size of the files of one program, in bytes."
    )
    max_files: int = Field(
        default=10_000, ge=1, le=100_000, description="Largest number of files of one program."
    )
    max_stored_bytes: int = Field(
        default=20 << 30,
        ge=1,
        le=1 << 50,
        description="Largest size in bytes of all uploaded files of one project, including their manifests. "
        "Equal files count once.",
    )
    keep_unused: Duration = Field(
        default=timedelta(days=7),
        ge=timedelta(hours=1),
        le=timedelta(days=36_500),
        description="Time for which uploaded files are kept after their last use. Files of jobs that have "
        "not ended are always kept.",
    )

    @property
    def limits(self) -> TreeLimits:
        """The largest size of a tree: its bytes, and its number of files."""
        return TreeLimits(max_bytes=self.max_bytes, max_files=self.max_files)

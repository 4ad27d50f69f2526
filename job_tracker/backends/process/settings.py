"""Settings of the process backend."""

from pathlib import Path

from pydantic import Field, SecretStr, model_validator

from job_tracker.common.config import DEFAULT_PATH, Config


class ProcessSettings(Config):
    """The process backend."""

    path: str = Field(
        default=DEFAULT_PATH,
        description="PATH of the processes. Default: the folder of the service's Python, then the system's "
        "default PATH.",
    )
    inherit: tuple[str, ...] = Field(
        default=("LANG", "LC_ALL", "TZ", "CUDA_VISIBLE_DEVICES"),
        description="Names of variables that are copied from the service's environment. All others are "
        "left out.",
    )
    secret_environment: dict[str, SecretStr] = Field(
        default={},
        description="Variables of every process whose values are never shown, such as credentials.",
    )
    program_environment: Path | None = Field(
        default=None,
        description="Folder of a Python virtual environment for uploaded programs. Unset: they find Python "
        "on `path`.",
    )
    first_port: int = Field(default=20000, ge=1024, le=65535, description="Lowest port for MASTER_PORT.")
    last_port: int = Field(default=29999, ge=1024, le=65535, description="Highest port for MASTER_PORT.")

    @model_validator(mode="after")
    def _ports_are_in_order(self) -> "ProcessSettings":
        if self.last_port < self.first_port:
            raise ValueError(
                f"last_port is {self.last_port}; at least first_port, {self.first_port}, is allowed"
            )
        return self

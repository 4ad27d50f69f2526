"""Settings of the process backend."""

from pydantic import Field, SecretStr, model_validator

from job_tracker.common.config import DEFAULT_PATH, Config


class ProcessSettings(Config):
    """The process backend."""

    path: str = Field(
        default=DEFAULT_PATH,
        description="PATH of the processes; it begins with the folder of the service's own python",
    )
    inherit: tuple[str, ...] = Field(
        default=("LANG", "LC_ALL", "TZ", "CUDA_VISIBLE_DEVICES"),
        description="variables of the service's environment that processes get; no others are passed on",
    )
    secret_environment: dict[str, SecretStr] = Field(
        default={}, description="variables for every process that are never shown, as of credentials"
    )
    first_port: int = Field(default=20000, ge=1024, le=65535, description="ports for MASTER_PORT: from …")
    last_port: int = Field(default=29999, ge=1024, le=65535, description="… to")

    @model_validator(mode="after")
    def _ports_are_in_order(self) -> "ProcessSettings":
        if self.last_port < self.first_port:
            raise ValueError(f"last_port {self.last_port} is below first_port {self.first_port}")
        return self

"""Settings of the process backend."""

from pydantic import Field, SecretStr, model_validator

from job_tracker.common.config import DEFAULT_PATH, Config


class ProcessSettings(Config):
    """The process backend."""

    path: str = Field(
        default=DEFAULT_PATH,
        description="PATH of the processes; the folder of the service's own python is put first",
    )
    inherit: tuple[str, ...] = Field(
        default=("LANG", "LC_ALL", "TZ", "CUDA_VISIBLE_DEVICES"),
        description="variables of the service's environment that processes inherit; all others are dropped",
    )
    secret_environment: dict[str, SecretStr] = Field(
        default={},
        description="variables for every process whose values are never displayed, such as credentials",
    )
    first_port: int = Field(
        default=20000, ge=1024, le=65535, description="first port of the range for MASTER_PORT"
    )
    last_port: int = Field(
        default=29999, ge=1024, le=65535, description="last port of the range for MASTER_PORT"
    )

    @model_validator(mode="after")
    def _ports_are_in_order(self) -> "ProcessSettings":
        if self.last_port < self.first_port:
            raise ValueError(
                f"last_port {self.last_port} is below first_port {self.first_port}; set it to at least that"
            )
        return self

"""Settings of the process backend."""

from datetime import timedelta
from pathlib import Path

from pydantic import Field, SecretStr, model_validator

from job_tracker.common.config import DEFAULT_PATH, Config, Duration


class ProcessSettings(Config):
    """The process backend."""

    path: str = Field(
        default=DEFAULT_PATH,
        description="PATH of the processes. Default: the folder of the service's Python, then the system's "
        "default PATH.",
    )
    inherit: tuple[str, ...] = Field(
        default=("LANG", "LC_ALL", "TZ", "CUDA_VISIBLE_DEVICES"),
        description="Names of environment variables that are copied from the service's environment. No other "
        "variables are copied.",
    )
    secret_environment: dict[str, SecretStr] = Field(
        default={},
        description="Environment variables of every process, such as credentials. Their values are never "
        "shown.",
    )
    program_environment: Path | None = Field(
        default=None,
        description="Folder of a Python virtual environment for uploaded programs. Unset: the programs use "
        "the Python on `path`.",
    )
    program_environments: dict[str, Path] = Field(
        default={},
        description="Folders of further Python virtual environments for uploaded programs. A caller chooses "
        "an environment by its name here (`trainctl run --environment NAME`).",
    )
    program_caches: Path | None = Field(
        default=None,
        description="Folder for caches that stay after the job. For uploaded programs, HF_HOME, TORCH_HOME, "
        "XDG_CACHE_HOME, TRITON_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR are folders in it, with one set of "
        "folders per project. The service never deletes them. Unset: each job has its own caches, in its "
        "HOME.",
    )
    keep_requirements: Duration = Field(
        default=timedelta(days=7),
        ge=timedelta(hours=1),
        le=timedelta(days=36_500),
        description="Time for which a Python environment of a requirements file is kept after its last use.",
    )
    max_requirements: int = Field(
        default=20,
        ge=1,
        le=10_000,
        description="Number of Python environments of requirements files that each project may keep. "
        "Environments that were not used for the longest time are removed first. Environments of running "
        "jobs are not removed.",
    )
    first_port: int = Field(default=20000, ge=1024, le=65535, description="Lowest port for ranks.")
    last_port: int = Field(
        default=29999,
        ge=1024,
        le=65535,
        description="Highest port for ranks. A group needs one free port (MASTER_PORT), or one for each rank "
        "if its framework gives every rank an address.",
    )

    @model_validator(mode="after")
    def _ports_are_in_order(self) -> "ProcessSettings":
        if self.last_port < self.first_port:
            raise ValueError(
                f"last_port is {self.last_port}; at least first_port, {self.first_port}, is allowed"
            )
        return self

"""Options of algorithms that run as plain processes."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from job_tracker.catalog.requested import MAX_PROCESSES_PER_INSTANCE
from job_tracker.common.config import Config


class OwnOptions(Config):
    """The options of an algorithm that exist only for the process backend."""

    virtual_environment: Annotated[Path, AfterValidator(Path.absolute)] | None = Field(
        default=None,
        description="Folder of a Python virtual environment, absolute or relative to the service's working "
        "directory. Its `bin` comes first on the PATH.",
    )
    memory_limit_bytes: int | None = Field(
        default=None,
        ge=1 << 20,
        description="Memory in bytes that one process may allocate, without shared memory. Unset: no limit.",
    )


class ProcessRecipe(OwnOptions):
    """The configuration of an algorithm that runs as plain processes."""

    command: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        min_length=1,
        description="Program and arguments, run without a shell. The program is found on the PATH of the "
        "processes.",
    )
    nproc_per_node: int = Field(
        default=1,
        ge=1,
        le=MAX_PROCESSES_PER_INSTANCE,
        description="Number of training processes in each instance. If more than 1, the launcher of the "
        "framework starts the processes.",
    )

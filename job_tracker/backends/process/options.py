"""Options of algorithms that run as plain processes."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from job_tracker.catalog.requested import MAX_PROCESSES_PER_INSTANCE
from job_tracker.common.config import Config


class OwnOptions(Config):
    """Options that only the process backend has."""

    virtual_environment: Annotated[Path, AfterValidator(Path.absolute)] | None = Field(
        default=None,
        description="the algorithm's Python environment, as an absolute path or relative to the service's "
        "working directory; its bin folder comes first on the PATH",
    )
    memory_limit_bytes: int | None = Field(
        default=None,
        ge=1 << 20,
        description="bytes of memory that one process may allocate; shared memory does not count",
    )


class ProcessRecipe(OwnOptions):
    """The configuration of an algorithm that runs as plain processes."""

    command: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        min_length=1, description="the program, looked up on the processes' PATH, and its arguments; no shell"
    )
    nproc_per_node: int = Field(
        default=1,
        ge=1,
        le=MAX_PROCESSES_PER_INSTANCE,
        description="training processes in each instance, which the framework's launcher starts",
    )

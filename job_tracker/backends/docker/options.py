"""Options of containers on a Docker engine, and the recipe of an algorithm."""

import re
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from job_tracker.backends.shared.instances import HOME, SHARED_MEMORY, TEMPORARY
from job_tracker.catalog.requested import MAX_PROCESSES_PER_INSTANCE
from job_tracker.catalog.syntax import (
    CPU,
    AbsolutePath,
    Bytes,
    EnvironmentName,
    Image,
    LabelKey,
    LabelValue,
    Resources,
)
from job_tracker.common.config import Config
from job_tracker.common.printable import quoted

MEMORY, GPU = "memory", "nvidia.com/gpu"
CONTAINER_RESOURCES = frozenset({CPU, MEMORY, GPU})
"""The resources that an engine can limit."""

_IDENTITY = {"run_as_user"}

Pull = Literal["missing", "always", "never"]

_VOLUME_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]+")
_ENGINE_SOCKETS = (PurePosixPath("/var/run/docker.sock"), PurePosixPath("/run/docker.sock"))


def _volume_source(source: str) -> str:
    path = PurePosixPath(source)
    if any(socket.is_relative_to(path) for socket in _ENGINE_SOCKETS if path.is_absolute()):
        raise ValueError(
            f"{quoted(source)} contains the socket of the engine, which gives root access to its machine"
        )
    plain = path.is_absolute() and ".." not in path.parts
    if not plain and not _VOLUME_NAME.fullmatch(source):
        raise ValueError(
            f"{quoted(source)} is not a valid source of a volume; allowed: absolute paths on the engine's "
            "machine and names of volumes"
        )
    return source


def _container_resources(resources: dict[str, str]) -> dict[str, str]:
    for name in resources:
        if name not in CONTAINER_RESOURCES:
            allowed = ", ".join(sorted(CONTAINER_RESOURCES))
            raise ValueError(f"{quoted(name)} is not a resource of containers; allowed: {allowed}")
    return resources


class ContainerVolume(Config):
    """A mount of a container: a folder of the engine's machine, or a named volume."""

    source: Annotated[str, AfterValidator(_volume_source)] = Field(
        description="Absolute path of a folder on the engine's machine, or name of a volume."
    )
    mount_path: AbsolutePath = Field(description="Absolute path in the container.")
    read_only: bool = Field(default=False, description="Mount the volume without write access.")


class ContainerOptions(Config):
    """Options of containers, for all algorithms or for one algorithm."""

    resources: Annotated[Resources, AfterValidator(_container_resources)] = Field(
        default={}, description="Limits of each instance by name: cpu, memory, nvidia.com/gpu."
    )
    nproc_per_node: int = Field(
        default=1,
        ge=1,
        le=MAX_PROCESSES_PER_INSTANCE,
        description="Number of training processes in each instance. If there are several, the "
        "framework's launcher, such as torchrun, starts them.",
    )
    labels: dict[LabelKey, LabelValue] = Field(
        default={}, description="Labels of the containers, in addition to the labels that the service sets."
    )
    shm_size: Bytes = Field(
        default="1Gi", description=f"Size of {SHARED_MEMORY}, such as 1Gi. It uses memory."
    )
    scratch_size: Bytes = Field(
        default="1Gi", description=f"Size of {HOME} and of {TEMPORARY}, such as 1Gi. They use memory."
    )
    pids_limit: int = Field(
        default=4096,
        ge=16,
        le=1 << 22,
        description="Number of processes and threads that an instance may have.",
    )
    run_as_user: int | None = Field(
        default=None, ge=1, description="User id of the processes. Unset: the user of the image."
    )
    working_directory: AbsolutePath | None = Field(
        default=None, description="Absolute path in the container. Unset: the working directory of the image."
    )
    volumes: tuple[ContainerVolume, ...] = Field(
        default=(),
        description="Volumes with datasets, models and checkpoints. If `storage.uri` is a folder, mount the "
        "folder at the same path in the containers.",
    )
    inherit: tuple[EnvironmentName, ...] = Field(
        default=(),
        description="Names of environment variables that are copied from the service's own environment, such "
        "as credentials.",
    )
    secret_files: dict[EnvironmentName, AbsolutePath] = Field(
        default={},
        description="Environment variables whose values are read from files on the service's machine: the "
        "name of the variable, and the absolute path of the file.",
    )

    @model_validator(mode="after")
    def _mounts_are_apart(self) -> "ContainerOptions":
        taken = {HOME, TEMPORARY, SHARED_MEMORY}
        for volume in self.volumes:
            if volume.mount_path in taken:
                raise ValueError(f"volumes: {volume.mount_path} is already mounted")
            taken.add(volume.mount_path)
        return self

    @property
    def identity(self) -> "ContainerOptions":
        """The options that say which user the processes of containers run as.

        If the operator changes these options, the changes also apply to queued jobs.
        """
        return ContainerOptions.model_validate(self.model_dump(exclude_unset=True, include=_IDENTITY))

    @property
    def without_identity(self) -> "ContainerOptions":
        """The options that are not in `identity`. They are fixed when a job is accepted."""
        return ContainerOptions.model_validate(self.model_dump(exclude_unset=True, exclude=_IDENTITY))

    @property
    def secret_names(self) -> frozenset[str]:
        """The names of the variables whose values are not part of the configuration."""
        return frozenset((*self.inherit, *self.secret_files))


class DockerRecipe(ContainerOptions):
    """The recipe of an algorithm: its image, its command and its options."""

    image: Image = Field(description="Image of the training code: [REGISTRY/]PATH[:TAG][@sha256:DIGEST].")
    command: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="Program and arguments, run without a shell. Unset: the command of the image.",
    )

    @model_validator(mode="after")
    def _torchrun_has_a_command(self) -> "DockerRecipe":
        if self.nproc_per_node > 1 and not self.command:
            raise ValueError(
                "nproc_per_node is above 1, so the framework's launcher needs a command to start; set command"
            )
        return self

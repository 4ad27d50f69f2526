"""Settings of the Docker backend."""

from datetime import timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from job_tracker.backends.docker.options import CONTAINER_RESOURCES, ContainerOptions, Pull
from job_tracker.backends.shared.program_images import ProgramImages
from job_tracker.catalog.syntax import LabelValue
from job_tracker.common.config import Duration

_OptionName = Literal["resources", "nproc_per_node", "labels"]
_OPTIONS: frozenset[_OptionName] = frozenset({"resources", "nproc_per_node", "labels"})
HOST = "host.docker.internal"
"""The default name by which containers reach the engine's machine."""

_Host = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$")]
_Address = Annotated[str, StringConstraints(pattern=r"^(host-gateway|[0-9.]{7,15}|[0-9a-fA-F:.]{2,45})$")]


class DockerSettings(ProgramImages):
    """The Docker backend."""

    resource_names: ClassVar[frozenset[str] | None] = CONTAINER_RESOURCES

    base_url: str | None = Field(
        default=None,
        pattern=r"^(unix|tcp|http|https)://.+$",
        description="URL of the engine, such as unix:///var/run/docker.sock. Unset: the engine that "
        "DOCKER_HOST names, with DOCKER_TLS_VERIFY and DOCKER_CERT_PATH. Without DOCKER_HOST: the engine of "
        "this machine.",
    )
    instance: LabelValue = Field(
        default="training-service",
        min_length=1,
        description="Label value that marks the containers of this service. Services that share an engine "
        "need different values.",
    )
    master_port: int = Field(
        default=12356,
        ge=1024,
        le=65535,
        description="MASTER_PORT of every group. Groups can have the same port, because each container has "
        "its own address.",
    )
    network: str = Field(
        default="bridge",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        description="Existing network for groups of one instance. The service creates a network for each "
        "larger group.",
    )
    extra_hosts: dict[_Host, _Address] = Field(
        default={HOST: "host-gateway"},
        description="Additional host names in the containers, with their addresses. `host-gateway` is the "
        "engine's machine.",
    )
    pull: Pull = Field(
        default="missing",
        description="When the engine pulls the image of a group before the launch. `missing`: only if it "
        "does not have the image.",
    )
    keep_programs: Duration = Field(
        default=timedelta(days=1),
        ge=timedelta(hours=1),
        le=timedelta(days=365),
        description="Time for which the engine keeps the files of an uploaded program after their last use. "
        "The files are in an image of their own, on top of the image that the program asks for.",
    )
    max_programs: int = Field(
        default=50,
        ge=1,
        le=10_000,
        description="Largest number of images with the files of uploaded programs. If there are more, images "
        "that were not used for the longest time are removed. Images that a container uses, or that were "
        "used within the last hour, stay.",
    )
    keep_requirements: Duration = Field(
        default=timedelta(days=7),
        ge=timedelta(hours=1),
        le=timedelta(days=36500),
        description="Time for which the engine keeps a Python environment of a requirements file after its "
        "last use.",
    )
    max_requirements: int = Field(
        default=20,
        ge=1,
        le=10_000,
        description="Number of Python environments of requirements files that each project may keep on the "
        "engine. Environments that were not used for the longest time are removed first. Environments of "
        "running jobs are not removed.",
    )
    call_seconds: int = Field(
        default=30, ge=1, le=600, description="Time-out of one call to the engine, in seconds."
    )
    container: ContainerOptions = Field(
        default=ContainerOptions(),
        description="Options of all containers. The options of an algorithm override them.",
    )
    allowed_request_options: frozenset[_OptionName] = Field(
        default=_OPTIONS,
        description="The options in `pod_options` that a request may set for its containers.",
    )

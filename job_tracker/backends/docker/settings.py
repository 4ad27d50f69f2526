"""Settings of the Docker backend."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from job_tracker.backends.docker.options import CONTAINER_RESOURCES, ContainerOptions, Pull
from job_tracker.catalog.request_limits import RequestLimits
from job_tracker.catalog.syntax import LabelValue

_OptionName = Literal["resources", "nproc_per_node", "labels"]
_OPTIONS: frozenset[_OptionName] = frozenset({"resources", "nproc_per_node", "labels"})
HOST = "host.docker.internal"
"""The engine's machine, as containers know it by default."""

_Host = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$")]
_Address = Annotated[str, StringConstraints(pattern=r"^(host-gateway|[0-9.]{7,15}|[0-9a-fA-F:.]{2,45})$")]


class DockerSettings(RequestLimits):
    """The Docker backend."""

    resource_names: ClassVar[frozenset[str] | None] = CONTAINER_RESOURCES

    base_url: str | None = Field(
        default=None,
        pattern=r"^(unix|tcp|http|https)://.+$",
        description="of the engine, as unix:///var/run/docker.sock; none: what DOCKER_HOST, DOCKER_TLS_VERIFY"
        " and DOCKER_CERT_PATH say, else the engine of this machine",
    )
    instance: LabelValue = Field(
        default="training-service",
        min_length=1,
        description="tells this service's containers from those of others on the engine",
    )
    master_port: int = Field(
        default=12356, ge=1024, le=65535, description="MASTER_PORT; each container has its own address"
    )
    network: str = Field(
        default="bridge",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        description="of groups of one instance, which must be there; larger groups have one of their own",
    )
    extra_hosts: dict[_Host, _Address] = Field(
        default={HOST: "host-gateway"},
        description="names that containers know besides; host-gateway is the engine's machine",
    )
    pull: Pull = Field(default="missing", description="when the engine pulls an image")
    call_seconds: int = Field(
        default=30, ge=1, le=600, description="how long the engine may take to answer before a call fails"
    )
    container: ContainerOptions = Field(
        default=ContainerOptions(),
        description="options of all containers; those of an algorithm are laid over them",
    )
    allowed_request_options: frozenset[_OptionName] = Field(
        default=_OPTIONS, description="which options of its containers a request may set (pod_options)"
    )

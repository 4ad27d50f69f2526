"""Settings of the Kubernetes backend."""

from datetime import timedelta
from pathlib import Path

from pydantic import Field

from job_tracker.backends.kubernetes.options import PodOptions
from job_tracker.backends.shared.program_images import ProgramImages
from job_tracker.catalog.syntax import Image, LabelValue, Namespace
from job_tracker.common.config import Duration


class KubernetesSettings(ProgramImages):
    """The Kubernetes backend."""

    kubeconfig: Path | None = Field(
        default=None,
        description="Path of a kubeconfig. Unset: the cluster that the service runs in, or else the "
        "configuration that kubectl uses.",
    )
    context: str | None = Field(
        default=None, min_length=1, description="Context of the kubeconfig. Unset: its current context."
    )
    namespace: Namespace = Field(default="default", description="Namespace of the pods.")
    instance: LabelValue = Field(
        default="training-service",
        min_length=1,
        description="Label value that marks the pods of this service. Services that share a namespace need "
        "different ones.",
    )
    master_port: int = Field(
        default=12356,
        ge=1024,
        le=65535,
        description="MASTER_PORT of every group. Each pod has its own address.",
    )
    image_pull_grace: Duration = Field(
        default=timedelta(seconds=60),
        ge=timedelta(0),
        le=timedelta(hours=1),
        description="Time that a failing image pull or container creation gets to recover before the attempt "
        "fails.",
    )
    lost_node_grace: Duration = Field(
        default=timedelta(minutes=5),
        ge=timedelta(0),
        le=timedelta(days=1),
        description="Time for which a node may be unreachable before its attempts fail.",
    )
    token_secrets: bool = Field(
        default=False,
        description="Put the tokens of each attempt into a Secret instead of into the environment of its "
        "pods. The service then needs permission to create Secrets.",
    )
    fetch_image: Image | None = Field(
        default=None,
        description="Image of the init container that fetches the files of an uploaded program. It needs "
        "python3 with grpcio, as the image of the service has. Unset: the program's own image.",
    )
    pod: PodOptions = Field(
        default=PodOptions(), description="Options of all pods. Those of an algorithm override them."
    )

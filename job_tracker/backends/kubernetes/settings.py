"""Settings of the Kubernetes backend."""

from datetime import timedelta
from pathlib import Path

from pydantic import Field

from job_tracker.backends.kubernetes.options import PodOptions
from job_tracker.catalog.request_limits import RequestLimits
from job_tracker.catalog.syntax import LabelValue, Namespace
from job_tracker.common.config import Duration


class KubernetesSettings(RequestLimits):
    """The Kubernetes backend."""

    kubeconfig: Path | None = Field(
        default=None,
        description="a kubeconfig file; none: the service's own pod, or kubectl's default outside a cluster",
    )
    context: str | None = Field(
        default=None, min_length=1, description="context in the kubeconfig; none: its current context"
    )
    namespace: Namespace = Field(default="default", description="namespace of the pods")
    instance: LabelValue = Field(
        default="training-service",
        min_length=1,
        description="identifies this service's pods among those of other services in the namespace",
    )
    master_port: int = Field(
        default=12356,
        ge=1024,
        le=65535,
        description="MASTER_PORT of all groups; each pod has its own address",
    )
    image_pull_grace: Duration = Field(
        default=timedelta(seconds=60),
        ge=timedelta(0),
        le=timedelta(hours=1),
        description="how long a failing image pull or container creation is retried before the job fails",
    )
    lost_node_grace: Duration = Field(
        default=timedelta(minutes=5),
        ge=timedelta(0),
        le=timedelta(days=1),
        description="how long a node may be silent before the jobs on it fail",
    )
    token_secrets: bool = Field(
        default=False,
        description="keep an attempt's tokens in a Secret instead of its pods' environment; the service "
        "then needs the right to create Secrets",
    )
    pod: PodOptions = Field(
        default=PodOptions(), description="options of all pods; an algorithm's options take precedence"
    )

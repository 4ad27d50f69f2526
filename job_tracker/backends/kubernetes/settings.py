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
        default=None, description="none: the cluster that the service runs in, else what kubectl would use"
    )
    context: str | None = Field(
        default=None, min_length=1, description="of the kubeconfig; none: its current one"
    )
    namespace: Namespace = Field(default="default", description="where the pods are")
    instance: LabelValue = Field(
        default="training-service",
        min_length=1,
        description="tells this service's pods from those of others in the namespace",
    )
    master_port: int = Field(
        default=12356, ge=1024, le=65535, description="MASTER_PORT; each pod has its own address"
    )
    image_pull_grace: Duration = Field(
        default=timedelta(seconds=60),
        ge=timedelta(0),
        le=timedelta(hours=1),
        description="how long an image that cannot be pulled, or a container that cannot be made, may take "
        "to mend itself",
    )
    lost_node_grace: Duration = Field(
        default=timedelta(minutes=5),
        ge=timedelta(0),
        le=timedelta(days=1),
        description="how long a node may be silent before its jobs fail",
    )
    token_secrets: bool = Field(
        default=False,
        description="whether the tokens of an attempt are in a Secret of its own instead of in its pods' "
        "environment; the service then needs the right to create Secrets",
    )
    pod: PodOptions = Field(
        default=PodOptions(), description="options of all pods; those of an algorithm are laid over them"
    )

"""Settings of the Kubernetes backend."""

from datetime import timedelta
from pathlib import Path

from pydantic import Field

from job_tracker.backends.kubernetes.options import PodOptions
from job_tracker.catalog.request_limits import ALLOWED_BY_DEFAULT, PodOptionName, RequestLimits
from job_tracker.catalog.syntax import KeyPrefix, LabelKey, LabelValue, Namespace, Resources
from job_tracker.common.config import Config, Duration


class KubernetesSettings(Config):
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
    allowed_request_options: frozenset[PodOptionName] = Field(
        default=ALLOWED_BY_DEFAULT, description="which options of its pods a request may set"
    )
    allowed_key_prefixes: tuple[KeyPrefix, ...] = Field(
        default=(), description="prefixes that keys of labels and annotations in a request may have"
    )
    allowed_labels: frozenset[LabelKey] = Field(
        default=frozenset(),
        description="labels that a request may set besides, by name: those without a prefix, such as team, "
        "and those of kubernetes.io and k8s.io",
    )
    max_resources: Resources = Field(
        default={}, description="the most that a request may ask for, for each instance"
    )

    @property
    def limits(self) -> RequestLimits:
        """What a request may set of its pods."""
        return RequestLimits(
            allowed=frozenset(self.allowed_request_options),
            max_resources=self.max_resources,
            allowed_key_prefixes=self.allowed_key_prefixes,
            allowed_labels=self.allowed_labels,
        )

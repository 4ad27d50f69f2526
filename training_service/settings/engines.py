"""Where groups run: processes, pods. Containers: docker.py."""

import os
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path

from pydantic import (
    Field,
    SecretStr,
    model_validator,
)

from job_tracker.catalog import Algorithm, PodOptions, RequestLimits
from job_tracker.catalog.request_limits import ALLOWED_BY_DEFAULT, Configured, PodOptionName, of_pods
from job_tracker.catalog.syntax import KeyPrefix, LabelKey, LabelValue, Namespace, Resources
from training_service.settings.section import Duration, Group


class ProcessSettings(Group):
    """The process backend."""

    path: str = Field(
        default=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}",
        description="PATH of the processes; it begins with the folder of the service's own python",
    )
    inherit: tuple[str, ...] = Field(
        default=("LANG", "LC_ALL", "TZ", "CUDA_VISIBLE_DEVICES"),
        description="variables of the service's environment that processes get; no others are passed on",
    )
    secret_environment: dict[str, SecretStr] = Field(
        default={}, description="variables for every process that are never shown, as of credentials"
    )
    first_port: int = Field(default=20000, ge=1024, le=65535, description="ports for MASTER_PORT: from …")
    last_port: int = Field(default=29999, ge=1024, le=65535, description="… to")

    @property
    def pod_policy(self) -> RequestLimits:
        """What a request may set of its instances."""

        def configured(algorithm: Algorithm) -> Configured:
            return Configured(processes=algorithm.process.nproc_per_node if algorithm.process else 1)

        return RequestLimits(configured=configured, allowed=frozenset({"nproc_per_node"}))

    @model_validator(mode="after")
    def _ports_are_in_order(self) -> "ProcessSettings":
        if self.last_port < self.first_port:
            raise ValueError(f"last_port {self.last_port} is below first_port {self.first_port}")
        return self


class KubernetesSettings(Group):
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
    def pod_policy(self) -> RequestLimits:
        """What a request may set of its pods."""
        return RequestLimits(
            configured=partial(of_pods, of_all=self.pod),
            allowed=frozenset(self.allowed_request_options),
            max_resources=self.max_resources,
            allowed_key_prefixes=self.allowed_key_prefixes,
            allowed_labels=self.allowed_labels,
        )

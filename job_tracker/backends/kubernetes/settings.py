"""Settings of the Kubernetes backend."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from job_tracker.backends.kubernetes.flavors import FlavorName, NodeFlavor
from job_tracker.backends.kubernetes.gangs import GangScheduler
from job_tracker.backends.kubernetes.kueue import KueueMarks, KueueSettings
from job_tracker.backends.kubernetes.options import PodOptions
from job_tracker.backends.shared.program_images import ProgramImages
from job_tracker.catalog.request_limits import FIELD
from job_tracker.catalog.syntax import Image, Key, LabelValue, Namespace, ObjectName
from job_tracker.common.config import Config, Duration
from job_tracker.domain.errors import InvalidField
from job_tracker.domain.group import InstanceOptions, Place


class Topology(Config):
    """Labels that name the machine, rack and zone of a node. Nodes in the same place have the same value."""

    machine: Key = Field(default="kubernetes.io/hostname", description="Label that names the machine.")
    rack: Key | None = Field(
        default=None,
        description="Label that names the rack, or the block of the network. Unset: requests cannot name "
        "racks.",
    )
    zone: Key | None = Field(
        default="topology.kubernetes.io/zone",
        description="Label that names the zone. Unset: requests cannot name zones.",
    )

    @property
    def labels(self) -> Mapping[Place, str]:
        """The labels of the configured kinds of places, from the smallest kind to the largest."""
        return {place: label for place in Place if (label := getattr(self, place.value))}


class KubernetesSettings(ProgramImages):
    """The Kubernetes backend."""

    kubeconfig: Path | None = Field(
        default=None,
        description="Path of a kubeconfig. Unset: the cluster in which the service runs. Outside of a "
        "cluster: the configuration that kubectl uses.",
    )
    context: str | None = Field(
        default=None, min_length=1, description="Context of the kubeconfig. Unset: its current context."
    )
    namespace: Namespace = Field(default="default", description="Namespace of the pods.")
    instance: LabelValue = Field(
        default="training-service",
        min_length=1,
        description="Label value that marks the pods of this service. Services that share a namespace need "
        "different values.",
    )
    master_port: int = Field(
        default=12356,
        ge=1024,
        le=65535,
        description="MASTER_PORT of every group. Groups can have the same port, because each pod has its own "
        "address.",
    )
    image_pull_grace: Duration = Field(
        default=timedelta(seconds=60),
        ge=timedelta(0),
        le=timedelta(hours=1),
        description="Time for which pulls of an image or the creation of a container may fail before the "
        "attempt fails.",
    )
    lost_node_grace: Duration = Field(
        default=timedelta(minutes=5),
        ge=timedelta(0),
        le=timedelta(days=1),
        description="Time for which a node may be unreachable before the attempts that have pods there fail.",
    )
    taken_place_grace: Duration = Field(
        default=timedelta(seconds=30),
        ge=timedelta(0),
        le=timedelta(days=1),
        description="Time for which a pod may be too large for the free capacity of its chosen node, for "
        "example because another pod started there first. After that, the job waits for capacity again.",
    )
    token_secrets: bool = Field(
        default=False,
        description="Put the tokens of each attempt into a Secret, instead of the environment of its pods. "
        "Then the service needs the right to create Secrets.",
    )
    fetch_image: Image | None = Field(
        default=None,
        description="Image of the init container that fetches the files of an uploaded program. It needs "
        "python3 with grpcio; the image of the service has both. Unset: the image in which the program runs.",
    )
    program_cache: ObjectName | None = Field(
        default=None,
        description="Name of a PersistentVolumeClaim that keeps files of uploaded programs, by project. Then "
        "`fetch_image` is required, because only the init container with this image mounts the claim. Unset: "
        "each pod fetches all files.",
    )
    program_cache_bytes: int = Field(
        default=20 << 30,
        ge=1,
        le=1 << 50,
        description="Size in bytes to which the files in `program_cache` are reduced, at most once an hour. "
        "The least recently used files are removed first. If nine tenths of the volume are less than this "
        "size, the files are reduced to nine tenths of the volume.",
    )
    topology: Topology = Field(
        default=Topology(),
        description="Labels of nodes that name their machine, rack and zone, for `placement`.",
    )
    flavors: dict[FlavorName, NodeFlavor] = Field(
        default={},
        max_length=100,
        description="Kinds of nodes by name. A node belongs to the first flavor whose labels it has. If a "
        "flavor is not in `scheduling.flavors`, its capacity is that of its nodes, and changes with them.",
    )
    gang: GangScheduler = Field(
        default=GangScheduler(),
        description="The gang scheduler of the cluster, which starts all pods of a group together.",
    )
    kueue: KueueSettings = Field(
        default=KueueSettings(),
        description="Names of queues and priorities that are different in Kueue, for `scheduling.delegate`.",
    )
    pod: PodOptions = Field(
        default=PodOptions(), description="Options of all pods. The options of an algorithm override them."
    )

    @model_validator(mode="after")
    def _cache_is_apart(self) -> "KubernetesSettings":
        if self.program_cache is None:
            return self
        if self.fetch_image is None:
            raise ValueError(
                "fetch_image: program_cache requires it, so that no image of a program mounts the cache; set "
                "it to the image of the service"
            )
        if any(volume.claim == self.program_cache for volume in self.pod.volumes):
            raise ValueError(
                f"program_cache: {self.program_cache} is also in pod.volumes, so programs could change it; "
                "name a claim of its own"
            )
        return self

    def check_delegate(self, delegate: str | None, priorities: Mapping[str, int]) -> None:
        """See BackendPlugin."""
        if delegate is None:
            if found := sorted(self.kueue.model_fields_set):
                raise ValueError(
                    f"kueue.{found[0]}: not allowed without scheduling.delegate = kueue; remove it"
                )
            return
        if self.gang.scheduler is not None:
            raise ValueError(
                f"gang.scheduler: {self.gang.scheduler} is not allowed with scheduling.delegate = "
                f"{delegate}, which admits whole groups; remove one of the two"
            )
        if self.flavors:
            raise ValueError(
                f"flavors: not allowed with scheduling.delegate = {delegate}, whose ResourceFlavors choose "
                "the nodes; remove them"
            )
        for name in self.kueue.priority_classes:
            if name not in priorities:
                known = ", ".join(priorities)
                raise ValueError(
                    f"kueue.priority_classes: {name} doesn't exist; allowed: {known} (scheduling.priorities)"
                )

    def kueue_marks(self, priorities: Mapping[str, int]) -> KueueMarks:
        """Return the marks that pods get for Kueue; see GroupMarks.

        `priorities` has the number of each class of `scheduling.priorities`, by its name.
        """
        classes = {priorities[name]: each for name, each in self.kueue.priority_classes.items()}
        return KueueMarks(self.kueue.queues, classes)

    def check(self, sent: Mapping[str, Any]) -> InstanceOptions:
        """Return the options of a request: see RequestLimits.

        Also raises InvalidField if the request names a kind of place for which the topology has no label.
        """
        options = super().check(sent)
        if options.placement:
            for name, place in (("near", options.placement.near), ("apart", options.placement.apart)):
                if place is not None and place not in self.topology.labels:
                    known = ", ".join(self.topology.labels)
                    raise InvalidField(
                        f"{FIELD}.placement.{name}",
                        f"{place.value!r} is not allowed: the configuration names no label of nodes for it "
                        f"(kubernetes.topology.{place}); allowed: {known}",
                    )
        return options

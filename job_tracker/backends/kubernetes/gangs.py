"""Marks pods for the cluster's own gang scheduler, so that it starts a group's pods together.

Such a scheduler starts all pods of a group, or none of them. Without the marks, it could start half of an
admitted group while the other half waits. This module has no I/O.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol

from pydantic import Field, model_validator

from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.catalog.syntax import ObjectName
from job_tracker.common.config import Config
from job_tracker.domain.job import Job

Scheduler = Literal["scheduler-plugins", "volcano"]
PodGroupResource = Literal["podgroups.scheduling.x-k8s.io", "podgroups.scheduling.volcano.sh"]
"""The resources of the objects that describe a group to a gang scheduler. They are not part of Kubernetes."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """The kind of object that describes a group to a scheduler, and the mark by which pods name their
    group.
    """

    api: str
    resource: PodGroupResource
    label: str = ""
    annotation: str = ""
    scheduler_name: str = ""
    """The usual name of the scheduler. Empty: there is no usual name."""


_KINDS: Mapping[Scheduler, _Kind] = {
    # kubernetes-sigs/scheduler-plugins: apis/scheduling/v1alpha1/types.go, PodGroupLabel
    "scheduler-plugins": _Kind(
        api="scheduling.x-k8s.io/v1alpha1",
        resource="podgroups.scheduling.x-k8s.io",
        label="scheduling.x-k8s.io/pod-group",
    ),
    # volcano-sh/apis: scheduling/v1beta1/labels.go, KubeGroupNameAnnotationKey
    "volcano": _Kind(
        api="scheduling.volcano.sh/v1beta1",
        resource="podgroups.scheduling.volcano.sh",
        annotation="scheduling.k8s.io/group-name",
        scheduler_name="volcano",
    ),
}
API_OF: Mapping[str, str] = {kind.resource: f"/apis/{kind.api}" for kind in _KINDS.values()}
"""The path of the API of each resource."""


class GroupMarks(Protocol):
    """Labels and annotations by which a gang scheduler or Kueue recognizes the pods of a group."""

    def of_group(self, pod: Manifest, job: Job, size: int) -> dict[str, Any]:
        """Return the pod with the labels and annotations of its group, which has `size` pods."""
        ...

    def pod_group(self, metadata: Mapping[str, Any], size: int) -> dict[str, Any] | None:
        """Return the object that describes the group and that the service has to create; None if there is
        none.
        """
        ...


def with_more(
    pod: Manifest,
    *,
    labels: Mapping[str, str] = MappingProxyType({}),
    annotations: Mapping[str, str] = MappingProxyType({}),
    spec: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the pod with these values added. They replace existing values of the same keys."""
    metadata = pod["metadata"]
    return {
        **pod,
        "metadata": {
            **metadata,
            "labels": {**metadata["labels"], **labels},
            "annotations": {**metadata["annotations"], **annotations},
        },
        "spec": {**pod["spec"], **spec},
    }


class GangScheduler(Config):
    """The table [kubernetes.gang]: the gang scheduler of the cluster."""

    scheduler: Scheduler | None = Field(
        default=None,
        description="Kind of the cluster's gang scheduler. For each group with several pods, the service "
        "creates a PodGroup. For this, it needs the rights in deploy/optional/gang. Unset: no gang "
        "scheduler.",
    )
    scheduler_name: ObjectName | None = Field(
        default=None,
        description="The schedulerName of the pods. Unset: `volcano` for Volcano. Otherwise the "
        "schedulerName in the `pod_template`, or the default scheduler of the cluster.",
    )
    queue: ObjectName | None = Field(
        default=None, description="Queue of Volcano for all groups. Unset: the default queue of Volcano."
    )

    @model_validator(mode="after")
    def _queue_is_of_volcano(self) -> "GangScheduler":
        if self.queue is not None and self.scheduler != "volcano":
            raise ValueError(f"queue: {self.queue} is not allowed without scheduler = volcano; remove it")
        if self.scheduler_name is not None and self.scheduler is None:
            raise ValueError(
                f"scheduler_name: {self.scheduler_name} is not allowed without scheduler; set scheduler, or "
                "set schedulerName in pod_template"
            )
        return self

    def of_group(self, pod: Manifest, job: Job, size: int) -> dict[str, Any]:
        """See GroupMarks. Only pods of groups with several instances get a mark."""
        if self.scheduler is None or size == 1:
            return dict(pod)
        kind, group = _KINDS[self.scheduler], job.group.name
        name = self.scheduler_name or kind.scheduler_name
        return with_more(
            pod,
            labels={kind.label: group} if kind.label else {},
            annotations={kind.annotation: group} if kind.annotation else {},
            spec={"schedulerName": name} if name else {},
        )

    @property
    def resource(self) -> PodGroupResource | None:
        """The resource of the objects that describe groups; None if there are no such objects."""
        return _KINDS[self.scheduler].resource if self.scheduler else None

    def pod_group(self, metadata: Mapping[str, Any], size: int) -> dict[str, Any] | None:
        """See GroupMarks."""
        if self.scheduler is None or size == 1:
            return None
        spec = {"minMember": size, **({"queue": self.queue} if self.queue else {})}
        return {
            "apiVersion": _KINDS[self.scheduler].api,
            "kind": "PodGroup",
            "metadata": dict(metadata),
            "spec": spec,
        }

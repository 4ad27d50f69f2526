"""Options that a request sets for its instances: the message PodOptions of the API."""

from dataclasses import asdict
from typing import Literal

from pydantic import Field, TypeAdapter, model_validator

from job_tracker.catalog.syntax import (
    AnnotationValue,
    Key,
    LabelKey,
    LabelValue,
    ObjectName,
    OwnKey,
    Resources,
)
from job_tracker.common.config import Config
from job_tracker.domain.group import InstanceOptions, Place

MAX_PROCESSES_PER_INSTANCE = 256
PROCESSES_PER_INSTANCE = 8
"""The default limit of a job's processes is this number times the largest number of instances of a job.

8 is the number of GPUs of a large machine.
"""
_MANY = 64
_OPTIONS = TypeAdapter(InstanceOptions)


class Toleration(Config):
    """A toleration of pods, as Kubernetes defines it."""

    key: Key | None = Field(
        default=None, description="Key of the taint. Unset, with operator Exists: every taint."
    )
    operator: Literal["Equal", "Exists"] = Field(
        default="Equal", description="`Equal`: the taint has this value. `Exists`: any value."
    )
    value: LabelValue = Field(default="", description="Value of the taint, for operator Equal.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect of the taint. Unset: every effect."
    )
    toleration_seconds: int | None = Field(
        default=None,
        ge=0,
        description="Time for which a NoExecute taint is tolerated, in seconds. Unset: for ever.",
    )

    @model_validator(mode="after")
    def _can_be_meant(self) -> "Toleration":
        if self.operator == "Exists" and self.value:
            raise ValueError(f"value {self.value!r} is not allowed with operator Exists; leave it out")
        if self.operator == "Equal" and self.key is None:
            raise ValueError("key: a value is required with operator Equal")
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise ValueError("toleration_seconds is allowed only with effect NoExecute")
        return self


class Placement(Config):
    """The placement of an attempt's pods relative to each other."""

    near: Place | None = Field(default=None, description="Run all pods in one `machine`, `rack` or `zone`.")
    apart: Place | None = Field(
        default=None,
        description="Run each pod in a different `machine`, `rack` or `zone`. It must be smaller than "
        "`near`.",
    )
    strict: bool = Field(
        default=False,
        description="Whether pods wait until this placement is possible. If false, the placement is only a "
        "preference.",
    )

    @model_validator(mode="after")
    def _is_possible(self) -> "Placement":
        if self.near is None and self.apart is None:
            raise ValueError("near or apart is required; allowed: machine, rack, zone")
        if self.near and self.apart and self.near not in self.apart.larger:
            larger = ", ".join(self.apart.larger) or "none"
            raise ValueError(
                f"near {self.near.value!r} is not allowed with apart {self.apart.value!r}, since it is not "
                f"larger; allowed: {larger}"
            )
        return self


class RequestedPodOptions(Config):
    """Options that a request can set if their names are in `allowed_request_options`."""

    resources: Resources = Field(
        default={},
        max_length=_MANY,
        description="Resources of each instance by name, such as cpu, memory and nvidia.com/gpu. They are "
        "both the requests and the limits of the pod.",
    )
    nproc_per_node: int = Field(
        default=1,
        ge=1,
        le=MAX_PROCESSES_PER_INSTANCE,
        description="Number of training processes in each instance. If there are several, the "
        "framework's launcher, such as torchrun, starts them.",
    )
    node_selector: dict[Key, LabelValue] = Field(
        default={}, max_length=_MANY, description="Labels that a node must have to run the pods."
    )
    tolerations: tuple[Toleration, ...] = Field(
        default=(), max_length=_MANY, description="Taints of nodes that the pods tolerate."
    )
    priority_class: ObjectName | None = Field(
        default=None, description="PriorityClass of the pods. Unset: the cluster's default."
    )
    labels: dict[LabelKey, LabelValue] = Field(
        default={},
        max_length=_MANY,
        description="Labels of the pods, in addition to the labels that the service sets.",
    )
    annotations: dict[OwnKey, AnnotationValue] = Field(
        default={},
        max_length=_MANY,
        description="Annotations of the pods, in addition to the annotations that the service sets.",
    )
    placement: Placement | None = Field(
        default=None,
        description="The placement of an attempt's pods relative to each other. Unset: the pods run on one "
        "machine if possible, otherwise in one rack if possible, otherwise in one zone if possible.",
    )

    def as_options(self) -> InstanceOptions:
        """Return the options that are set, without defaults."""
        return _OPTIONS.validate_python(self.model_dump(exclude_unset=True))


def requested(options: InstanceOptions) -> RequestedPodOptions:
    """Return the options that are set, for `overlay`. Raises ValueError if one is no longer allowed."""
    return RequestedPodOptions.model_validate(
        {name: value for name, value in asdict(options).items() if value}
    )

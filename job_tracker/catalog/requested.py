"""What a request may set of its instances, as it arrives: PodOptions on the wire."""

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
from job_tracker.domain.group import InstanceOptions

MAX_PROCESSES_PER_INSTANCE = 256
_MANY = 64
_OPTIONS = TypeAdapter(InstanceOptions)


class Toleration(Config):
    """A taint that the pods put up with."""

    key: Key | None = Field(default=None, description="none, with operator Exists: every taint")
    operator: Literal["Equal", "Exists"] = "Equal"
    value: LabelValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="none: every effect"
    )
    toleration_seconds: int | None = Field(
        default=None, ge=0, description="how long a NoExecute taint is put up with; none: for ever"
    )

    @model_validator(mode="after")
    def _can_be_meant(self) -> "Toleration":
        if self.operator == "Exists" and self.value:
            raise ValueError(f"value {self.value!r} is not allowed with operator Exists; leave it out")
        if self.operator == "Equal" and self.key is None:
            raise ValueError("key is missing; only operator Exists can do without")
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise ValueError("toleration_seconds is allowed with effect NoExecute only")
        return self


class RequestedPodOptions(Config):
    """What a request may set, as far as configuration allows it."""

    resources: Resources = Field(
        default={},
        max_length=_MANY,
        description="what each instance gets, GPUs included: requested, and the limit",
    )
    nproc_per_node: int = Field(
        default=1,
        ge=1,
        le=MAX_PROCESSES_PER_INSTANCE,
        description="training processes in each instance; more than one are started by torchrun",
    )
    node_selector: dict[Key, LabelValue] = Field(default={}, max_length=_MANY)
    tolerations: tuple[Toleration, ...] = Field(default=(), max_length=_MANY)
    priority_class: ObjectName | None = None
    labels: dict[LabelKey, LabelValue] = Field(default={}, max_length=_MANY)
    annotations: dict[OwnKey, AnnotationValue] = Field(default={}, max_length=_MANY)

    def as_options(self) -> InstanceOptions:
        """What was set, and no defaults."""
        return _OPTIONS.validate_python(self.model_dump(exclude_unset=True))


def requested(options: InstanceOptions) -> RequestedPodOptions:
    """The options that were set, to be laid over others. Raises ValueError for what is no longer allowed."""
    return RequestedPodOptions.model_validate(
        {name: value for name, value in asdict(options).items() if value}
    )

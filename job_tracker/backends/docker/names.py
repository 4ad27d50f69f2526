"""What the objects of a group are called, beside its containers, and the labels they are found by. Pure."""

from collections.abc import Mapping

from job_tracker.backends.shared.labels import ATTEMPT, INSTANCE, JOB_ID, MANAGED_BY, MANAGER
from job_tracker.domain.group import GroupRef

ENDING = "-ending"


def network_name(group: str) -> str:
    """The network of a group of several instances."""
    return group


def ending_name(group: str) -> str:
    """The volume that says that the group is to end; see endings.py."""
    return f"{group}{ENDING}"


def group_of_ending(volume: str) -> str | None:
    """The name of the group that a volume of this name is about, if it is such a one."""
    return volume.removesuffix(ENDING) if volume.endswith(ENDING) else None


def ours(instance: str) -> list[str]:
    """The labels, as filters have them, of all that the service named `instance` has made."""
    return [f"{MANAGED_BY}={MANAGER}", f"{INSTANCE}={instance}"]


def of_group(group: GroupRef, instance: str) -> list[str]:
    """The labels, as filters have them, of one group's objects."""
    return [*ours(instance), f"{JOB_ID}={group.job_id}", f"{ATTEMPT}={group.attempt}"]


def are_ours(labels: Mapping[str, str], instance: str) -> bool:
    """Whether the service named `instance` has made what has these labels."""
    return labels.get(MANAGED_BY) == MANAGER and labels.get(INSTANCE) == instance

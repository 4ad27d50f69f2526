"""Names of a group's network and ending, and the labels by which the group's objects are found.

Pure functions, without I/O.
"""

from collections.abc import Mapping

from job_tracker.backends.shared.labels import ATTEMPT, INSTANCE, JOB_ID, MANAGED_BY, MANAGER
from job_tracker.domain.group import GroupRef

ENDING = "-ending"


def network_name(group: str) -> str:
    """Return the name of the group's network. Only groups with several instances have a network."""
    return group


def ending_name(group: str) -> str:
    """Return the name of the volume that marks the ending of the group: see endings.py."""
    return f"{group}{ENDING}"


def group_of_ending(volume: str) -> str | None:
    """Return the name of the group whose ending this volume marks; None if it marks no ending."""
    return volume.removesuffix(ENDING) if volume.endswith(ENDING) else None


def ours(instance: str) -> list[str]:
    """Return the labels by which all objects of the service named `instance` are found."""
    return [f"{MANAGED_BY}={MANAGER}", f"{INSTANCE}={instance}"]


def of_group(group: GroupRef, instance: str) -> list[str]:
    """Return the labels by which the objects of one group are found."""
    return [*ours(instance), f"{JOB_ID}={group.job_id}", f"{ATTEMPT}={group.attempt}"]


def are_ours(labels: Mapping[str, str], instance: str) -> bool:
    """Return whether the service named `instance` created the object with these labels."""
    return labels.get(MANAGED_BY) == MANAGER and labels.get(INSTANCE) == instance

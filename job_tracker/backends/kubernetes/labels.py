"""What is written on every object of a group, and how it is read again: labels, annotations, the owner."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from job_tracker.backends.shared.labels import (
    ATTEMPT,
    INSTANCE,
    INSTANCES,
    JOB_ID,
    KEPT_UNTIL,
    MANAGED_BY,
    MANAGER,
    PLAN_DIGEST,
    RANK,
    RESTARTS,
    ROLE,
    SUBMITTED_AT,
    group_named,
    number,
)
from job_tracker.domain import naming
from job_tracker.domain.group import MASTER_RANK, GroupRef

Manifest = Mapping[str, Any]
"""An object of the API as its JSON has it (camelCase)."""

KEPT = "training-service/kept"
"""On pods of stopped groups that people may still look at; see keeping.py."""


def selector(instance: str, *, kept: bool = False) -> str:
    """The label selector, as the API takes it, of what the service named `instance` has made.

    Either all of live groups, or what is kept of stopped ones.
    """
    return f"{MANAGED_BY}={MANAGER},{INSTANCE}={instance},{'' if kept else '!'}{KEPT}"


def group_selector(group: GroupRef, instance: str) -> str:
    """The label selector of one group's objects."""
    return f"{selector(instance)},{JOB_ID}={group.job_id},{ATTEMPT}={group.attempt}"


def group_of(manifest: Manifest) -> GroupRef | None:
    """The group that the object belongs to; None if its labels are not as we write them."""
    return group_named(_labels(manifest), _annotations(manifest))


def rank_of(manifest: Manifest) -> int | None:
    """The rank of a pod; None if its labels, or its name, are not as we write them."""
    group, rank = group_of(manifest), number(_labels(manifest).get(RANK))
    if group is None or rank is None:
        return None
    named = naming.instance_name(group.name, rank, _labels(manifest).get(ROLE, naming.WORKER))
    return rank if manifest["metadata"]["name"] == named else None


def instances_of(manifest: Manifest) -> int | None:
    """How many instances the object's group was planned with."""
    return number(_annotations(manifest).get(INSTANCES))


def digest_of(manifest: Manifest) -> str | None:
    """The digest of the plan that the object was made from."""
    return _annotations(manifest).get(PLAN_DIGEST)


def submission_of(manifest: Manifest) -> str | None:
    """When the object's job was submitted, which tells it from one of the same id in another store."""
    return _annotations(manifest).get(SUBMITTED_AT)


def restarts_of(manifest: Manifest) -> int:
    """How often the pod's rank was started anew, of which the pod is the last start."""
    return number(_annotations(manifest).get(RESTARTS)) or 0


def is_kept(manifest: Manifest) -> bool:
    """Whether it is of a stopped group, and there for people to look at."""
    return KEPT in _labels(manifest)


def kept_until(manifest: Manifest) -> datetime | None:
    """Until when it is kept, which people may change; None if that is no time."""
    try:
        until = datetime.fromisoformat(_annotations(manifest).get(KEPT_UNTIL, ""))
    except ValueError:
        return None
    return until if until.tzinfo else until.replace(tzinfo=UTC)


def owned_by(manifest: Manifest, master_pod: Manifest) -> dict[str, Any]:
    """The object as the master pod's own, so that the cluster deletes it with the master.

    `master_pod` is the pod as the API server answered, with its uid. The owner is no controller (a
    worker on a node that is drained is not made anew elsewhere), and its deletion is not held up.
    """
    master = master_pod["metadata"]
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": master["name"],
        "uid": master["uid"],
        "controller": False,
        "blockOwnerDeletion": False,
    }
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}


def is_master(manifest: Manifest) -> bool:
    """Whether the pod is rank 0 of its group."""
    return rank_of(manifest) == MASTER_RANK


def _labels(manifest: Manifest) -> Mapping[str, str]:
    return manifest.get("metadata", {}).get("labels") or {}


def _annotations(manifest: Manifest) -> Mapping[str, str]:
    return manifest.get("metadata", {}).get("annotations") or {}

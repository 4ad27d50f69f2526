"""Labels, annotations and the owner of a group's objects, and functions that read them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from job_tracker.backends.shared.labels import (
    ATTEMPT,
    FLAVOR,
    INSTANCE,
    INSTANCES,
    JOB_ID,
    KEPT_UNTIL,
    MANAGED_BY,
    MANAGER,
    NODE,
    PLAN_DIGEST,
    PROGRAM_TREE,
    RANK,
    RESTARTS,
    ROLE,
    SUBMITTED_AT,
    group_named,
    number,
)
from job_tracker.domain import naming
from job_tracker.domain.group import GroupRef

Manifest = Mapping[str, Any]
"""An API object as JSON (camelCase)."""

KEPT = "training-service/kept"
"""Label of pods that are kept for inspection after their group has stopped; see keeping.py."""


def selector(instance: str, *, kept: bool = False) -> str:
    """Return the label selector for objects of the service named `instance`.

    It matches all objects of live groups. With `kept`, it matches the kept pods of stopped groups instead.
    """
    return f"{MANAGED_BY}={MANAGER},{INSTANCE}={instance},{'' if kept else '!'}{KEPT}"


def group_selector(group: GroupRef, instance: str) -> str:
    """Return the label selector for the objects of one live group."""
    return f"{selector(instance)},{JOB_ID}={group.job_id},{ATTEMPT}={group.attempt}"


def group_of(manifest: Manifest) -> GroupRef | None:
    """Return the group of the object; None if its labels and annotations do not name a group."""
    return group_named(_labels(manifest), _annotations(manifest))


def planned_place(manifest: Manifest) -> tuple[str, str] | None:
    """Return the flavor and the node that the scheduler has chosen for a pod; None if it has chosen none."""
    annotations = _annotations(manifest)
    if FLAVOR not in annotations or NODE not in annotations:
        return None
    return annotations[FLAVOR], annotations[NODE]


def runs_program(manifest: Manifest) -> bool:
    """Return whether the object belongs to a job that runs an uploaded program."""
    return PROGRAM_TREE in _annotations(manifest)


def rank_of(manifest: Manifest) -> int | None:
    """Return the rank of a pod; None if its labels or its name are not valid for this service."""
    group, rank = group_of(manifest), number(_labels(manifest).get(RANK))
    if group is None or rank is None:
        return None
    named = naming.instance_name(group.name, rank, _labels(manifest).get(ROLE, naming.WORKER))
    return rank if manifest["metadata"]["name"] == named else None


def instances_of(manifest: Manifest) -> int | None:
    """Return the planned number of instances of the object's group; None without a valid annotation."""
    return number(_annotations(manifest).get(INSTANCES))


def digest_of(manifest: Manifest) -> str | None:
    """Return the digest of the plan from which the object was made; None without the annotation."""
    return _annotations(manifest).get(PLAN_DIGEST)


def submission_of(manifest: Manifest) -> str | None:
    """Return the submission time of the object's job, as text; None without the annotation.

    It distinguishes jobs that have the same id in different stores.
    """
    return _annotations(manifest).get(SUBMITTED_AT)


def restarts_of(manifest: Manifest) -> int:
    """Return how often the pod's rank was restarted, counting the restart that created this pod."""
    return number(_annotations(manifest).get(RESTARTS)) or 0


def is_kept(manifest: Manifest) -> bool:
    """Return whether the pod belongs to a stopped group and is kept for inspection."""
    return KEPT in _labels(manifest)


def kept_until(manifest: Manifest) -> datetime | None:
    """Return the time until which the pod is kept; None if a user has removed or damaged the annotation."""
    try:
        until = datetime.fromisoformat(_annotations(manifest).get(KEPT_UNTIL, ""))
    except ValueError:
        return None
    return until if until.tzinfo else until.replace(tzinfo=UTC)


def owned_by(manifest: Manifest, master_pod: Manifest) -> dict[str, Any]:
    """Return the object with the master pod as owner, so that the cluster deletes it with the master.

    `master_pod` is the pod as the API server has returned it, with its uid. The master is not marked as the
    controller of the object. Otherwise, `kubectl drain` would expect the master to create the object again.
    The object does not block the deletion of the master.
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


def _labels(manifest: Manifest) -> Mapping[str, str]:
    return manifest.get("metadata", {}).get("labels") or {}


def _annotations(manifest: Manifest) -> Mapping[str, str]:
    return manifest.get("metadata", {}).get("annotations") or {}

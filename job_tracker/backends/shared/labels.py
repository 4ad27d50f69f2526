"""The words that every engine's objects are found again by: which group, which rank, of which plan."""

from collections.abc import Mapping

from job_tracker.domain import naming
from job_tracker.domain.group import GroupRef
from job_tracker.domain.job import Job

MANAGED_BY = "app.kubernetes.io/managed-by"
INSTANCE = "app.kubernetes.io/instance"
NAME = "app.kubernetes.io/name"
JOB_ID = "training-service/job-id"
ATTEMPT = "training-service/attempt"
RANK = "training-service/rank"
ROLE = "training-service/role"

ALGORITHM = "training-service/algorithm"
INSTANCES = "training-service/instances"
SUBMITTED_AT = "training-service/submitted-at"
PLAN_DIGEST = "training-service/plan-digest"
RESTARTS = "training-service/restarts"
KEPT_UNTIL = "training-service/kept-until"

MANAGER = "training-service"
_MAX_VALUE = 63


def group_labels(job: Job, instance: str) -> dict[str, str]:
    """The labels that every object of the job's attempt has; `instance` is this service's name."""
    return {
        MANAGED_BY: MANAGER,
        INSTANCE: instance,
        NAME: naming.slug(job.spec.algorithm, _MAX_VALUE),
        JOB_ID: str(job.id),
        ATTEMPT: str(job.attempt),
    }


def rank_labels(rank: int, role: str) -> dict[str, str]:
    """The labels that tell a group's instances apart."""
    return {RANK: str(rank), ROLE: role}


def group_annotations(job: Job) -> dict[str, str]:
    """What labels of pods cannot hold. The moment of submission tells job 1 from job 1 of another store."""
    return {
        ALGORITHM: job.spec.algorithm,
        INSTANCES: str(job.spec.instances),
        SUBMITTED_AT: job.submitted_at.isoformat(),
    }


def group_named(labels: Mapping[str, str], annotations: Mapping[str, str]) -> GroupRef | None:
    """The group that an object belongs to; None if they are not as we write them."""
    job_id, attempt = number(labels.get(JOB_ID)), number(labels.get(ATTEMPT))
    if labels.get(MANAGED_BY) != MANAGER or ALGORITHM not in annotations or not job_id or not attempt:
        return None
    return GroupRef(naming.group_name(annotations[ALGORITHM], job_id, attempt), job_id, attempt)


def number(text: str | None) -> int | None:
    """The number that a label holds, if it does."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 10 else None

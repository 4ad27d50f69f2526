"""Labels and annotations of the objects of groups, in Docker and in Kubernetes."""

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
FLAVOR = "training-service/flavor"
NODE = "training-service/node"
PROGRAM_TREE = "training-service/program-tree"
PROGRAM_IMAGE = "training-service/program-image"
BASE_IMAGE = "training-service/base-image"
ENVIRONMENTS_OF = "training-service/environments-of"
KEPT_UNTIL = "training-service/kept-until"

MANAGER = "training-service"
_MAX_VALUE = 63


def group_labels(job: Job, instance: str) -> dict[str, str]:
    """Return the labels of every object of the job's attempt. `instance` is the name of this service."""
    return {
        MANAGED_BY: MANAGER,
        INSTANCE: instance,
        NAME: naming.slug(job.spec.algorithm, _MAX_VALUE),
        JOB_ID: str(job.id),
        ATTEMPT: str(job.attempt),
    }


def rank_labels(rank: int, role: str) -> dict[str, str]:
    """Return the labels of one instance of a group."""
    return {RANK: str(rank), ROLE: role}


def group_annotations(job: Job) -> dict[str, str]:
    """Return the values that describe the job's group but do not fit into labels.

    The time of submission distinguishes jobs that have the same id in different stores. Only jobs with an
    uploaded program have a tree.
    """
    return {
        **({PROGRAM_TREE: job.spec.program.tree} if job.spec.program else {}),
        ALGORITHM: job.spec.algorithm,
        INSTANCES: str(job.spec.instances),
        SUBMITTED_AT: job.submitted_at.isoformat(),
    }


def group_named(labels: Mapping[str, str], annotations: Mapping[str, str]) -> GroupRef | None:
    """Return the group of an object with these labels and annotations; None if no service has set them."""
    job_id, attempt = number(labels.get(JOB_ID)), number(labels.get(ATTEMPT))
    if labels.get(MANAGED_BY) != MANAGER or ALGORITHM not in annotations or not job_id or not attempt:
        return None
    return GroupRef(naming.group_name(annotations[ALGORITHM], job_id, attempt), job_id, attempt)


def number(text: str | None) -> int | None:
    """Return the number in a label; None if the label is missing or is not a number of up to 10 digits."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 10 else None

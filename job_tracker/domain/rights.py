"""The table of rights: for each operation, the least role, and the call in the API if there is one.

The operations are those of `Jobs`, `Access`, `ReportKeyAccess`, `Programs`, `Declarations` and `ServiceView`.
An operation without a row is denied to all callers. So is a call that has no row and is in neither of the
sets BY_ANY_CALLER and BY_REPORT_TOKEN. A test compares the rows with the classes and with the proto files, so
a new call without a row fails the checks.

If the caller has no role in a job's project, every operation on the job raises the same JobNotFound as if the
job had never existed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from job_tracker.common.printable import quoted
from job_tracker.domain import naming
from job_tracker.domain.caller import ALL_PROJECTS, Caller, Role
from job_tracker.domain.errors import Forbidden, JobNotFound
from job_tracker.domain.job import Job


@dataclass(frozen=True, slots=True)
class Right:
    """A row: who may use an operation."""

    rpc: str
    """The name of the API call, without its service; empty: the API has no such call."""
    action: str
    """The operation in words, for messages."""
    least: Role
    """The least role in the job's project, or in the project of the request."""
    for_others: Role | None = None
    """The least role for jobs that other callers submitted; None: the role `least`."""


RIGHTS: Mapping[str, Right] = {
    "submit": Right("Train", "submit jobs", Role.SUBMITTER),
    "get": Right("GetTrainingStatus", "read jobs", Role.VIEWER),
    "list": Right("ListTrainingJobs", "list jobs", Role.VIEWER),
    "queue": Right("GetQueue", "list jobs", Role.VIEWER),
    "explain": Right("ExplainTraining", "read jobs", Role.VIEWER),
    "snapshot": Right("GetQueueSnapshot", "read the queue", Role.VIEWER),
    "cancel": Right("CancelTraining", "cancel jobs", Role.SUBMITTER, for_others=Role.ADMIN),
    "annotate": Right("AnnotateTraining", "annotate jobs", Role.SUBMITTER, for_others=Role.ADMIN),
    "delete": Right("DeleteTraining", "delete jobs", Role.SUBMITTER, for_others=Role.ADMIN),
    "watch": Right("WatchTraining", "watch jobs", Role.VIEWER),
    "logs": Right("GetTrainingLogs", "read logs", Role.VIEWER),
    "metrics": Right("GetTrainingMetrics", "read metrics", Role.VIEWER),
    "artifacts": Right("GetTrainingArtifacts", "read artifacts", Role.VIEWER),
    "fetch": Right("FetchTrainingArtifact", "read artifacts", Role.VIEWER),
    "changes": Right("GetTrainingChanges", "read changes of programs", Role.VIEWER),
}
"""The rows by operation of `Jobs`."""

ACCESS_RIGHTS: Mapping[str, Right] = {
    "create_token": Right("CreateToken", "create tokens", Role.ADMIN),
    "list_tokens": Right("ListTokens", "list tokens", Role.ADMIN),
    "revoke_token": Right("RevokeToken", "revoke tokens", Role.ADMIN),
    "set_project": Right("SetProject", "declare projects", Role.OPERATOR),
    "delete_project": Right("DeleteProject", "delete projects", Role.OPERATOR),
    "set_member": Right("SetMember", "set members", Role.ADMIN),
    "remove_member": Right("RemoveMember", "remove members", Role.ADMIN),
    "list_events": Right("ListAuditEvents", "read the audit", Role.ADMIN),
    "list_report_keys": Right("ListReportKeys", "list the keys of reports", Role.OPERATOR),
    "rotate_report_key": Right("RotateReportKey", "rotate the keys of reports", Role.OPERATOR),
    "remove_report_key": Right("RemoveReportKey", "remove keys of reports", Role.OPERATOR),
}
"""The rows by operation of `Access` and `ReportKeyAccess`."""

PROGRAM_RIGHTS: Mapping[str, Right] = {
    "find_tree": Right("FindTree", "upload programs", Role.SUBMITTER),
    "put_manifest": Right("PutManifest", "upload programs", Role.SUBMITTER),
    "upload_files": Right("UploadFiles", "upload programs", Role.SUBMITTER),
}
"""The rows by operation of `Programs`. To run a program, a caller also needs the right to submit."""

CATALOG_RIGHTS: Mapping[str, Right] = {
    "list_algorithms": Right("ListAlgorithms", "list algorithms", Role.VIEWER),
    "list_datasets": Right("ListDatasets", "list datasets", Role.VIEWER),
    "set_algorithm": Right("SetAlgorithm", "declare algorithms", Role.ADMIN),
    "remove_algorithm": Right("RemoveAlgorithm", "remove algorithms", Role.ADMIN),
    "set_dataset": Right("SetDataset", "declare datasets", Role.ADMIN),
    "remove_dataset": Right("RemoveDataset", "remove datasets", Role.ADMIN),
    "list_queues": Right("ListQueues", "list queues", Role.VIEWER),
    "set_queue": Right("SetQueue", "declare queues", Role.OPERATOR),
    "remove_queue": Right("RemoveQueue", "remove queues", Role.OPERATOR),
}
"""The rows by operation of `Declarations`. Only operators change declarations for all projects."""

SERVICE_RIGHTS: Mapping[str, Right] = {
    "see_service": Right("", "see the replicas and the stores", Role.OPERATOR),
}
"""The rows by operation of `ServiceView`.

Only the dashboard has these operations: the API has no such calls.
"""

BY_ANY_CALLER = frozenset({"WhoAmI", "ListProjects"})
"""Calls that need a caller, but no role. They show only facts that the caller may know."""

BY_REPORT_TOKEN = frozenset({"Report", "FetchProgram"})
"""Calls that need a report token instead of a role.

The token is valid for a single attempt, which it names.
"""

_ROWS = {**RIGHTS, **ACCESS_RIGHTS, **PROGRAM_RIGHTS, **CATALOG_RIGHTS, **SERVICE_RIGHTS}

RPCS = BY_REPORT_TOKEN | BY_ANY_CALLER | {right.rpc for right in _ROWS.values() if right.rpc}
"""The calls that have a row, or are in one of the two sets above. All others are denied."""


def check(caller: Caller, operation: str, project: str) -> None:
    """Raise Forbidden unless the caller may use the operation in the project.

    The message does not depend on whether the project exists.
    """
    right = _row(operation)
    role = caller.role_in(project)
    if role is None or role < right.least:
        raise Forbidden(_explained(caller, right.action, project, role, right.least))


def check_everywhere(caller: Caller, operation: str) -> None:
    """Raise Forbidden unless the caller may use the operation in every project."""
    right = _row(operation)
    role = caller.roles.get(ALL_PROJECTS)
    if role is None or role < right.least:
        # If the least role is not OPERATOR, other callers may use the operation in their own projects.
        scope = "" if right.least is Role.OPERATOR else " of all projects"
        raise Forbidden(f"only an operator may {right.action}{scope}, and {caller.name} is not one")


def check_job(caller: Caller, operation: str, job: Job) -> None:
    """Raise JobNotFound if the caller may not know of the job; Forbidden if it may not use the operation."""
    right = _row(operation)
    role = caller.role_in(job.spec.project)
    if role is None:
        raise JobNotFound(job.id)
    if role < right.least:
        raise Forbidden(_explained(caller, right.action, job.spec.project, role, right.least))
    if right.for_others is not None and role < right.for_others and caller.name != job.spec.submitted_by:
        action = f"{right.action} of others"
        problem = _explained(caller, action, job.spec.project, role, right.for_others)
        submitter = job.spec.submitted_by or "an unknown caller"
        raise Forbidden(f"{problem}, and {submitter} submitted job {job.id}")


def _row(operation: str) -> Right:
    if operation not in _ROWS:
        raise Forbidden(f"operation {operation!r} is denied: the table of rights has no row for it")
    return _ROWS[operation]


def _explained(caller: Caller, action: str, project: str, role: Role | None, least: Role) -> str:
    has = f"{caller.name} is {role}" if role else f"{caller.name} has no role there"
    named = project if naming.is_project(project) else quoted(project)  # the name may be any text
    return f"project {named}: only a caller with the role {least} or a higher one may {action}; {has}"

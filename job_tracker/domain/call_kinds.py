"""The kinds of API calls. Each kind has its own limits."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class CallKind(StrEnum):
    """The kind of a call. Each kind has settings `limits.KIND_rate` and `limits.KIND_burst`."""

    SUBMIT = "submit"
    """The call queues a job."""
    CHANGE = "change"
    """The call changes a job, a token, a project, a report key, the catalog or a queue, or uploads files."""
    READ = "read"
    """The call reads one object."""
    LIST = "list"
    """The call reads many objects."""
    STREAM = "stream"
    """The call opens a stream."""
    REPORT = "report"
    """The call reports on an attempt of a job.

    These calls are counted for each process of an attempt, and calls of other kinds for each caller. There is
    one exception: FetchProgram is a call with a report token. So it counts as a report of the attempt's
    process 0, although its kind in KINDS is STREAM.
    """


KINDS: Final[Mapping[str, CallKind]] = {
    "Train": CallKind.SUBMIT,
    "GetTrainingStatus": CallKind.READ,
    "ListTrainingJobs": CallKind.LIST,
    "GetQueue": CallKind.LIST,
    "ExplainTraining": CallKind.LIST,
    "GetQueueSnapshot": CallKind.LIST,
    "CancelTraining": CallKind.CHANGE,
    "AnnotateTraining": CallKind.CHANGE,
    "DeleteTraining": CallKind.CHANGE,
    "WatchTraining": CallKind.STREAM,
    "GetTrainingLogs": CallKind.STREAM,
    "GetTrainingMetrics": CallKind.STREAM,
    "GetTrainingArtifacts": CallKind.LIST,
    "FetchTrainingArtifact": CallKind.STREAM,
    "GetTrainingChanges": CallKind.STREAM,
    "WhoAmI": CallKind.READ,
    "CreateToken": CallKind.CHANGE,
    "ListTokens": CallKind.LIST,
    "RevokeToken": CallKind.CHANGE,
    "ListProjects": CallKind.LIST,
    "SetProject": CallKind.CHANGE,
    "DeleteProject": CallKind.CHANGE,
    "SetMember": CallKind.CHANGE,
    "RemoveMember": CallKind.CHANGE,
    "ListAuditEvents": CallKind.LIST,
    "ListReportKeys": CallKind.LIST,
    "RotateReportKey": CallKind.CHANGE,
    "RemoveReportKey": CallKind.CHANGE,
    "FindTree": CallKind.READ,
    "PutManifest": CallKind.CHANGE,
    "UploadFiles": CallKind.CHANGE,
    "ListAlgorithms": CallKind.LIST,
    "ListDatasets": CallKind.LIST,
    "SetAlgorithm": CallKind.CHANGE,
    "RemoveAlgorithm": CallKind.CHANGE,
    "SetDataset": CallKind.CHANGE,
    "RemoveDataset": CallKind.CHANGE,
    "ListQueues": CallKind.LIST,
    "SetQueue": CallKind.CHANGE,
    "RemoveQueue": CallKind.CHANGE,
    "Report": CallKind.REPORT,
    "FetchProgram": CallKind.STREAM,
}
"""The kind of each call.

A test compares this table with the table of rights, so a new call without a kind fails the checks.
"""

CHANGING: Final = frozenset(
    name for name, kind in KINDS.items() if kind in (CallKind.SUBMIT, CallKind.CHANGE)
)
"""The calls that change something, except Report. They are logged even if they succeed."""

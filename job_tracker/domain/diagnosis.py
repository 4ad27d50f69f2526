"""Explanations of failures: a category that software can match on, and sentences for people."""

from dataclasses import dataclass
from enum import StrEnum


class Category(StrEnum):
    """The kinds of failures. Clients and alerts match on the values, so never rename a category."""

    CRASHED = "crashed"
    KILLED = "killed"
    OUT_OF_MEMORY = "out_of_memory"
    COMMAND_NOT_FOUND = "command_not_found"
    COMMAND_NOT_EXECUTABLE = "command_not_executable"
    REQUIREMENTS_FAILED = "requirements_failed"
    PORT_IN_USE = "port_in_use"
    STORAGE_NOT_WRITABLE = "storage_not_writable"
    NO_FREE_PORT = "no_free_port"
    GROUP_VANISHED = "group_vanished"
    SUPERVISOR_LOST = "supervisor_lost"
    RECORDS_LOST = "records_lost"
    EXCEEDS_CAPACITY = "exceeds_capacity"
    ALGORITHM_GONE = "algorithm_gone"
    LAUNCH_FAILED = "launch_failed"
    IMAGE_PULL_FAILED = "image_pull_failed"
    INVALID_IMAGE = "invalid_image"
    CONTAINER_CONFIG = "container_config"
    CONTAINER_NOT_CREATED = "container_not_created"
    CONTAINER_REMOVED = "container_removed"
    INIT_FAILED = "init_failed"
    EVICTED = "evicted"
    PREEMPTED = "preempted"
    NODE_LOST = "node_lost"
    PLACE_TAKEN = "place_taken"
    NODE_REFUSED = "node_refused"
    POD_DELETED = "pod_deleted"
    SERVICE_DELETED = "service_deleted"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    NEVER_STARTED = "never_started"
    DIVERGED = "diverged"
    QUEUED_TOO_LONG = "queued_too_long"
    NAME_TAKEN = "name_taken"
    QUOTA_EXCEEDED = "quota_exceeded"
    FORBIDDEN = "forbidden"
    INVALID_OBJECT = "invalid_object"
    NAMESPACE_GONE = "namespace_gone"
    STALLED = "stalled"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """An explained failure. Clients rely on the meaning of its fields, which must not change.

    `summary` says what happened, and `resolution` what to do. `detail` is the evidence, such as the last
    lines of the log. `cause` is the line of the evidence that names the cause, such as an exception with its
    place in the code. `cause` has a limited length and is safe to print; empty if unknown. `retryable` says
    that the same request may succeed if it is repeated unchanged. `rank` is the rank that failed, None for
    the whole group.
    """

    category: Category
    summary: str
    resolution: str
    detail: str = ""
    retryable: bool = False
    rank: int | None = None
    cause: str = ""

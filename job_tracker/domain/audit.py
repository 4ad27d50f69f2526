"""Audit events: who did what, who was denied what, and who read logs, artifacts and changes of programs.

An event never contains values of parameters, or secrets.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from job_tracker.common.log_context import request_id
from job_tracker.common.printable import without_secrets
from job_tracker.domain.caller import Caller

LONGEST_TARGET: Final = 200
LONGEST_DETAIL: Final = 200
"""The largest number of characters of a detail. Longer details are cut."""

AUTHENTICATE: Final = "authenticate"
"""The action of a call whose caller could not be identified."""
MORE: Final = "more"
"""The action of an event that stands for several events, which were too many to be kept one by one."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Outcome(StrEnum):
    """The outcome of an action."""

    DONE = "done"
    """The action changed something."""
    DENIED = "denied"
    """The caller may not do this, or could not prove that it may."""
    READ = "read"
    """The caller was allowed to read logs, artifacts or changes of programs, and began to read them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """An event. A field is empty if its value is unknown or does not apply."""

    id: int = 0
    """The id that the store gives when it keeps the event: `at` in microseconds since 1970, or one more than
    the last id if that is higher. So ids increase, and a time corresponds to a position among the ids."""
    at: datetime
    action: str
    """The operation, as in rights.py, or AUTHENTICATE or MORE."""
    outcome: Outcome
    caller: str = ""
    """The name of the caller; empty if it could not be identified."""
    means: str = ""
    """The means by which the caller was identified; see Means."""
    credential: str = ""
    """The visible id of the caller's token."""
    address: str = ""
    """The caller's host."""
    project: str = ""
    target: str = ""
    """The object of the action, for example "job 12" or "member alice"."""
    detail: str = ""
    count: int = 1
    """The number of events that this event stands for: equal events, or any events if the action is MORE.

    `at` and `request_id` are those of the first of these events.
    """
    request_id: str = ""


EventObserver = Callable[[AuditEvent], None]
"""A function that is called for each denial, and for each read of logs, artifacts or changes of programs.

It must return at once, and must not raise errors.
"""


def ignore_event(event: AuditEvent) -> None:
    """Do nothing; an EventObserver."""


def event_of(
    caller: Caller,
    action: str,
    outcome: Outcome,
    at: datetime,
    *,
    project: str = "",
    target: str = "",
    detail: str = "",
) -> AuditEvent:
    """Return an event of the caller, with the request id of the running call."""
    return AuditEvent(
        at=at,
        action=action,
        outcome=outcome,
        caller=caller.name,
        means=caller.means.value,
        credential=caller.credential,
        address=caller.address,
        project=project,
        target=without_secrets(target)[:LONGEST_TARGET],
        detail=without_secrets(detail)[:LONGEST_DETAIL],
        request_id=request_id.get(),
    )


def first_id_at(moment: datetime) -> int:
    """Return the lowest id that an event at this time can have."""
    return max(0, (moment - _EPOCH) // _MICROSECOND)


def target_of_report_key(key_id: int) -> str:
    """Return the target of events about a key of report tokens."""
    return f"report key {key_id}"


def target_of_job(job_id: int) -> str:
    """Return the target of events about a job."""
    return f"job {job_id}"

"""A visit: one request of a caller for a page, and the operations that the page may use."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from secrets import token_urlsafe
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from job_tracker.access.operations import Access
from job_tracker.access.service_view import ServiceView
from job_tracker.common.clock import utc_now
from job_tracker.declarations.operations import Declarations
from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import InvalidField, JobNotFound
from job_tracker.jobs import Jobs
from job_tracker.store.jobs import Changes
from training_service.web.live import LivePages
from training_service.web.sessions import Session
from training_service.web.shared import SharedParts
from training_service.web.templates import render
from training_service.web.visitors import Visitors

_MOST_FIELDS = 2000
_LARGEST_ID = 2**63 - 1
SEE_OTHER = 303
LONGEST_KEY = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The operations that pages may use. All of them check the caller's rights."""

    jobs: Jobs
    access: Access
    catalog: Declarations
    service: ServiceView
    visitors: Visitors
    changes: Callable[[int | None], AbstractContextManager[Changes]]
    """Follows changes of the job with this id; of all jobs for None.

    A change has only the id and state of a job. Pages then read the job with an operation that checks
    the caller's rights.
    """
    live: LivePages
    shared: SharedParts
    api_address: str = ""
    """The address of the API, for commands to copy. The API uses TLS if the dashboard does."""
    clock: Callable[[], datetime] = utc_now


@dataclass(slots=True, kw_only=True)
class Visit:
    """One request, its caller and its session."""

    request: Request
    parts: Parts
    session: Session
    caller: Caller | None
    form: Mapping[str, str] = field(default_factory=dict)
    """The last value of each field of a form that was sent."""
    lists: Mapping[str, list[str]] = field(default_factory=dict)
    """All values of each field of the form."""

    @property
    def who(self) -> Caller:
        """The caller. Public pages must not use it, since their visits may have no caller."""
        assert self.caller is not None
        return self.caller

    @property
    def jobs(self) -> Jobs:
        """The operations on jobs."""
        return self.parts.jobs

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters of the URL."""
        return self.request.query_params

    @property
    def shown_before(self) -> str:
        """The digest of the version that the browser shows, from its last event or its URL; empty if
        unknown.
        """
        return self.request.headers.get("last-event-id") or self.query.get("seen", "")

    @property
    def job_id(self) -> int:
        """The id of the job, from the path. Raises JobNotFound if it is too large."""
        job_id: int = self.request.path_params["job_id"]
        if job_id > _LARGEST_ID:
            raise JobNotFound(job_id)
        return job_id

    def new_key(self) -> str:
        """Return a request key for a form, so that a form that is sent twice makes only one job."""
        return token_urlsafe(16)

    def whole_number(self, name: str, default: int, least: int, most: int) -> int:
        """Return the number with this name in the URL; `default` if there is none.

        Raises InvalidField if it is not from `least` to `most`.
        """
        return whole_number(name, self.query.get(name, ""), default, least, most)

    def page(self, template: str, status: int = 200, /, **values: Any) -> Response:
        """Return the template as a page, with this HTTP status."""
        return HTMLResponse(self.rendered(template, **values), status)

    def stream(self, events: AsyncGenerator[str | bytes, None]) -> Response:
        """Return a stream of events, which ends with the session. Raises LimitExceeded; see LivePages."""
        return self.parts.live.response(events, self.session.ends_at)

    def rendered(self, template: str, /, **values: Any) -> str:
        """Return the text of a template, with this visit as `visit`."""
        proof = self.parts.visitors.sessions.proof_of(self.session)
        return render(template, visit=self, proof=proof, **values)


def whole_number(name: str, text: str, default: int, least: int, most: int) -> int:
    """Return the number in a text; `default` if the text is empty.

    Raises InvalidField with this name if it is not a number from `least` to `most`.
    """
    if not text:
        return default
    value = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else -1
    if not least <= value <= most:
        raise InvalidField(name, f"{text[:40]!r} is not allowed; allowed: {least} to {most}")
    return value


async def read_form(visit: Visit) -> None:
    """Read the form of the request, and store its fields in the visit.

    Raises InvalidField if the request has no valid form, and TooLarge if its body is too large.
    """
    body = await visit.request.body()
    kind = visit.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise InvalidField("content-type", "it must be application/x-www-form-urlencoded")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError:
        raise InvalidField("form", f"it is not a form of at most {_MOST_FIELDS} fields in UTF-8") from None
    lists: dict[str, list[str]] = {}
    for name, value in pairs:
        lists.setdefault(name, []).append(value)
    visit.lists = lists
    visit.form = {name: values[-1] for name, values in lists.items()}


def see(path: str) -> Response:
    """Return the answer to a form: a redirection to the page at this path."""
    return RedirectResponse(path, SEE_OTHER)

"""The dashboard as an application: its addresses, and the common steps around each page."""

import logging
import random
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlencode

import grpc
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from job_tracker.common.log_context import request_id
from job_tracker.common.printable import printable, without_secrets
from job_tracker.domain.call_kinds import CHANGING
from job_tracker.domain.errors import LimitExceeded
from training_service.api.limits import CallLimits
from training_service.auth.authenticator import AUTHORIZATION
from training_service.web import files
from training_service.web.answers import Failure, FormTooOld, PageNotFound, failure_of, internal
from training_service.web.sessions import Session
from training_service.web.shield import Shield
from training_service.web.templates import render
from training_service.web.visitors import LoginNeeded
from training_service.web.visits import SEE_OTHER, Parts, Visit, read_form

log = logging.getLogger("training_service.access")

PROOF: Final = "proof"
"""The field of forms that carries the proof of the session."""
_LONGEST_NAME: Final = 100
_CHALLENGE: Final = 'Bearer realm="training-service"'

View = Callable[[Visit], Awaitable[Response]]


class CallObserver(Protocol):
    """Counts requests in the same metrics as calls of the API; see training_service/metrics."""

    def __call__(self, method: str, code: grpc.StatusCode, seconds: float) -> None:
        """`method` is "web " and the name of the page."""
        ...


@dataclass(frozen=True, slots=True)
class Page:
    """An address with its view, and calls of the API.

    In limits and logs, a request to this address counts as these calls.
    """

    path: str
    view: View
    calls: tuple[str, ...] = ()
    is_form: bool = False
    """Whether the page is the target of a form. Its requests need the proof of their session."""
    is_public: bool = False
    """Whether the page may be seen without a login."""
    takes_tokens: bool = False
    """Whether a token in the headers may replace a login, for programs. Forms take no tokens."""

    @property
    def name(self) -> str:
        """The name of the page in metrics and in the log."""
        return f"{self.view.__module__.rpartition('.')[2]}.{self.view.__name__}"


def make_site(
    parts: Parts,
    pages: Sequence[Page],
    limits: CallLimits,
    observe: CallObserver,
    observe_refusal: Callable[[str], None] = lambda _: None,
    hosts: Collection[str] = (),
) -> ASGIApp:
    """Return the application."""
    site = _Site(parts, limits, observe, observe_refusal)
    routes = [
        Route(page.path, site.endpoint(page), methods=["POST" if page.is_form else "GET"]) for page in pages
    ]
    routes.append(Route("/static/{name:path}", files.serve))
    app = Starlette(routes=routes, exception_handlers={404: _unknown, 405: _unknown, PageNotFound: _unknown})
    return Shield(app, hosts=hosts, is_encrypted=parts.visitors.is_encrypted)


async def _unknown(request: Request, _error: Exception) -> Response:
    failure = failure_of(PageNotFound("no page of the dashboard has this address"))
    assert failure is not None
    return _error_page(request, failure, "")


class _Site:
    def __init__(
        self,
        parts: Parts,
        limits: CallLimits,
        observe: CallObserver,
        observe_refusal: Callable[[str], None],
    ) -> None:
        self._parts = parts
        self._limits = limits
        self._observe = observe
        self._observe_refusal = observe_refusal

    def endpoint(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        """Return the page's view with the common steps around it: caller, limits, proof, errors, log and
        metrics.
        """

        async def answer(request: Request) -> Response:
            started = time.perf_counter()
            identity = random.randbytes(16).hex()  # noqa: S311  # not a secret
            token = request_id.set(identity)
            visitors = self._parts.visitors
            found = visitors.session_of(request)
            visit = Visit(
                request=request,
                parts=self._parts,
                session=found or visitors.sessions.begin(),
                caller=None,
            )
            code, message = grpc.StatusCode.CANCELLED, ""
            is_link = found is None and not page.is_form and _is_from_elsewhere(request)
            try:
                # If a link on another site leads here, the browser sends no cookie. So the answer is a page
                # that loads itself again, and then the browser sends the cookie.
                response = (
                    HTMLResponse(render("again.html")) if is_link else await self._answer(page, visit, found)
                )
                code = grpc.StatusCode.OK
            except Exception as error:
                failure = failure_of(error)
                if failure is None:
                    log.exception("%s failed", page.name)
                    failure = internal(identity)
                code, message = failure.code, without_secrets(failure.message)
                if isinstance(error, LimitExceeded):
                    self._observe_refusal(error.limit)
                response = self._error(page, visit, error, failure)
            finally:
                self._end(page, request, visit, code, message, time.perf_counter() - started)
                with suppress(ValueError):
                    request_id.reset(token)
            response.headers["x-request-id"] = identity
            is_new = found is None and not is_link and not _is_of_program(request)
            if is_new and "set-cookie" not in response.headers:
                set_cookie(response, visit, visit.session)
            return response

        answer.__name__ = page.name
        return answer

    async def _answer(self, page: Page, visit: Visit, found: Session | None) -> Response:
        visitors = self._parts.visitors
        if page.is_form:
            await read_form(visit)
            if found is None or not visitors.sessions.proves(found, visit.form.get(PROOF, "")):
                raise FormTooOld(
                    "your session has ended, or another login has replaced it; load the page again"
                )
        if not page.is_public:
            if _has_token(page, visit.request):
                visit.caller = await visitors.caller_with_token(visit.request)
            else:
                visit.caller = await visitors.caller_of(visit.request, found)
            for call in page.calls:
                self._limits.check(call, visit.caller)
        return await page.view(visit)

    def _error(self, page: Page, visit: Visit, error: Exception, failure: Failure) -> Response:
        request = visit.request
        if isinstance(error, LoginNeeded) and not page.is_form and _is_of_browser(request):
            there = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            response = RedirectResponse("/login?" + urlencode({"next": there}), SEE_OTHER)
            if visit.session.credential:
                response.delete_cookie(self._parts.visitors.cookie, path="/")
            return response
        if page.takes_tokens and failure.code is grpc.StatusCode.UNAUTHENTICATED:
            return _challenge(request, failure)
        return _error_page(request, failure, visit.caller.name if visit.caller else "")

    def _end(
        self,
        page: Page,
        request: Request,
        visit: Visit,
        code: grpc.StatusCode,
        message: str,
        seconds: float,
    ) -> None:
        """Count the request. Log it if it failed or changed something, as for calls of the API."""
        self._observe(f"web {page.name}", code, seconds)
        if code is grpc.StatusCode.OK and CHANGING.isdisjoint(page.calls):
            return
        by = f" by {printable(visit.caller.name[:_LONGEST_NAME])}" if visit.caller else ""
        reason = f": {printable(message)}" if message else ""
        path = printable(request.url.path[:_LONGEST_NAME])
        log.info("%s %s %s %.1f ms%s%s", request.method, path, code.name, seconds * 1000, by, reason)


def set_cookie(response: Response, visit: Visit, session: Session) -> None:
    """Let the browser keep the session. No script can read it, and no other site can use it."""
    visitors = visit.parts.visitors
    response.set_cookie(
        visitors.cookie,
        visitors.sessions.cookie_of(session),
        max_age=int(visitors.sessions.seconds),
        path="/",
        secure=visitors.is_encrypted,
        httponly=True,
        samesite="strict",
    )


def _is_from_elsewhere(request: Request) -> bool:
    """Return whether a link on another site made this request. The browser then sends no cookie."""
    return request.headers.get("sec-fetch-site") == "cross-site"


def _has_token(page: Page, request: Request) -> bool:
    """Return whether a token in the headers identifies the caller, instead of the session.

    No page of another site can send the header `authorization` here: a browser would first ask with the
    method OPTIONS, which the shield refuses.
    """
    return page.takes_tokens and AUTHORIZATION in request.headers


def _is_part(request: Request) -> bool:
    """Return whether a script of a page loads a part of the page.

    Such a request is never redirected to the login: the script could not show that page.
    """
    return "hx-request" in request.headers or "text/event-stream" in request.headers.get("accept", "")


def _is_of_browser(request: Request) -> bool:
    """Return whether a browser loads a page. Only browsers ask for HTML by name."""
    return "text/html" in request.headers.get("accept", "") and not _is_part(request)


def _is_of_program(request: Request) -> bool:
    """Return whether a program other than a browser sends the request, such as curl."""
    return not _is_of_browser(request) and not _is_part(request)


def _challenge(request: Request, failure: Failure) -> Response:
    """Return the answer to a request without a valid token, for a page that takes tokens."""
    is_sent = AUTHORIZATION in request.headers
    hint = "" if is_sent else f"; a program sends the header '{AUTHORIZATION}: Bearer TOKEN'"
    response = PlainTextResponse(f"{failure.message}{hint}\n", failure.status)
    response.headers["www-authenticate"] = _CHALLENGE + (', error="invalid_token"' if is_sent else "")
    return response


def _error_page(request: Request, failure: Failure, who: str) -> Response:
    if _is_of_program(request):
        response: Response = PlainTextResponse(f"{failure.message}\n", failure.status)
    else:
        text = render("error_part.html" if _is_part(request) else "error.html", failure=failure, who=who)
        response = HTMLResponse(text, failure.status)
    if failure.retry_after is not None:
        response.headers["retry-after"] = str(max(1, round(failure.retry_after)))
    return response

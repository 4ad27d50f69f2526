"""Refuses requests that no page of the dashboard would send, before any other code reads the requests."""

import ipaddress
from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY: Final = 1 << 20
"""The largest size of a form in bytes."""
_LONGEST_PATH: Final = 2000
_METHODS: Final = ("GET", "HEAD", "POST")
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""The content security policy: nothing from another origin, and nothing inline."""
_HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class TooLarge(Exception):
    """A body is larger than MOST_BODY."""


class Shield:
    """Checks host, method, origin and size of each request, and adds headers to each answer."""

    def __init__(self, app: ASGIApp, *, hosts: Collection[str], is_encrypted: bool = False) -> None:
        """`hosts` are the host names of the dashboard. Names of the loopback interface are always allowed."""
        self._app = app
        self._hosts = frozenset(host.lower().rstrip(".") for host in hosts)
        self._scheme = "https" if is_encrypted else "http"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on to the application."""
        if scope["type"] != "http":
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        if refusal := self._refusal(scope):
            text, status = refusal
            await PlainTextResponse(text, status)(scope, receive, answer)
            return
        await self._app(scope, _bounded(receive), answer)

    def _refusal(self, scope: Scope) -> tuple[str, int] | None:
        """Return why the request is refused, and the HTTP status; None if it is allowed."""
        headers = Headers(scope=scope)
        given = headers.getlist("host")
        if len(given) != 1 or not self._knows(host := given[0]):
            return "This host name is not a name of the dashboard. Add it to the setting web.hosts.\n", 421
        if len(scope["path"]) > _LONGEST_PATH:
            return "This address is too long.\n", 414
        if scope["method"] not in _METHODS:
            return "This method is not allowed.\n", 405
        if not headers.get("content-length", "0").isdecimal():
            return "The content length is not a number.\n", 400
        if int(headers.get("content-length", "0")[:20]) > MOST_BODY:
            return f"The request is too large; at most {MOST_BODY} bytes are allowed.\n", 413
        if scope["method"] == "POST" and not self._is_own(headers, host):
            return "This form is not from a page of the dashboard.\n", 403
        return None

    def _knows(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        name = name.strip("[]").lower().rstrip(".")
        if name in self._hosts or name == "localhost":
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False

    def _is_own(self, headers: Headers, host: str) -> bool:
        """Return False if the browser's headers show that no page of the dashboard sent the request.

        Requests without these headers, for example of curl, are accepted.
        """
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"{self._scheme}://{host}".lower():
            return False
        return headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


def _bounded(receive: Receive) -> Receive:
    """Return a function like `receive` that raises TooLarge if the body is larger than MOST_BODY."""
    size = 0

    async def counted() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MOST_BODY:
            raise TooLarge
        return message

    return counted

"""An API server whose answers the test prepares."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import web

from job_tracker.backends.kubernetes.client import Patience

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
PATIENT = Patience(try_seconds=240.0, total_seconds=240.0, first_pause=0.01, longest_pause=0.05)
IMPATIENT = replace(PATIENT, try_seconds=0.3, total_seconds=3.0)


def status(code: int, reason: str = "", message: str = "no", **headers: str) -> Answer:
    """Return an answer with a `Status` object."""
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(body, status=code, headers=headers)

    return answer


def says(content: Any) -> Answer:
    """Return an answer with this object."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(content)

    return answer


def pods(version: int, *items: dict[str, Any], more: str = "") -> Answer:
    """Return an answer with a list of pods at this version."""
    metadata = {"resourceVersion": str(version), **({"continue": more} if more else {})}
    return says({"kind": "PodList", "metadata": metadata, "items": list(items)})


def events(*lines: dict[str, Any], then_wait: float = 0.0) -> Answer:
    """Return an answer that is a watch of these events, sent in small pieces.

    The watch ends after `then_wait` seconds.
    """

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        for start in range(0, len(data), 7):
            await response.write(data[start : start + 7])
        await request.app[SCRIPTED].wait(then_wait)
        return response

    return answer


def pod(name: str, version: int, uid: str = "", **metadata: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": uid or f"uid-of-{name}", "resourceVersion": str(version), **metadata}
    return {"kind": "Pod", "metadata": metadata}


@dataclass
class Scripted:
    """The server's answers in order. Each request takes the next one and is recorded.

    `counted` has the requests that the client reports to its metrics: the kind, and the code of the answer.
    """

    answers: list[Answer] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    counted: list[tuple[str, str]] = field(default_factory=list)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def was_asked(self, times: int) -> None:
        """Wait until this number of requests has arrived."""
        while len(self.requests) < times:
            self.asked.clear()
            await self.asked.wait()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path_qs}")
        self.bodies.append(await request.json() if request.can_read_body else None)
        self.asked.set()
        if not self.answers:
            await self.wait(60)
            return web.Response(status=503)
        return await self.answers.pop(0)(request)

    async def wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.closing.wait(), seconds)


SCRIPTED = web.AppKey("scripted", Scripted)

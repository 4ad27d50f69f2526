"""Calls the API server in plain JSON. Limits the calls in flight, and retries calls for a while."""

import asyncio
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_core import from_json

from job_tracker.backends.kubernetes.access import Access
from job_tracker.backends.kubernetes.api_errors import (
    AlreadyExists,
    Conflict,
    NotFound,
    Unreachable,
    from_status,
)
from job_tracker.backends.kubernetes.connection import Connection, Query
from job_tracker.backends.kubernetes.gangs import API_OF, PodGroupResource
from job_tracker.backends.kubernetes.kueue import APIS as KUEUE_APIS
from job_tracker.backends.kubernetes.kueue import LOCAL_QUEUES, KueueResource
from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.common.backoff import Backoff
from job_tracker.domain.observers import RequestObserver, ignore_request

Resource = Literal["pods", "services", "secrets", "events", "nodes"] | PodGroupResource | KueueResource

_APIS: dict[str, str] = {**API_OF, **KUEUE_APIS}
"""The API paths of resources outside the core API."""

_LOG_STREAMS = 1024
_WATCHES = 4  # connections only for watches, so that logs never block a watch; fewer would suffice
_PATIENT_STREAMS = 128
"""The most streams that are being opened at once inside `giving_way`.

A node has fewer pods, so one node that hangs does not block the streams of other nodes.
"""
_PAGE = 500
_gives_way = ContextVar("gives_way", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Limits of a call, in seconds: for one try, for all tries together, and for the pauses between tries."""

    try_seconds: float = 10.0
    total_seconds: float = 20.0
    first_pause: float = 0.1
    longest_pause: float = 5.0


@dataclass(frozen=True, slots=True)
class Listing:
    """All listed objects, and the version from which a watch continues."""

    items: list[Manifest]
    version: str


class KubernetesClient:
    """Calls to one namespace of a cluster, or to all namespaces if `namespace` is empty.

    The first call connects. Calls raise ApiError, and BackendRefused if no credentials can be read. Two
    errors are raised only after several tries: Unreachable, and any Conflict of a create except
    AlreadyExists. Other errors are raised at once. `watch`, `logs` and `execute` are not retried.
    """

    def __init__(
        self,
        access: Access,
        namespace: str,
        *,
        calls: int = 32,
        streams: int = _LOG_STREAMS,
        patience: Patience | None = None,
        on_request: RequestObserver = ignore_request,
    ) -> None:
        """Limit the calls in flight to `calls`, and calls inside `giving_way` to a quarter of that number.

        At most `streams` logs are read at once. Watches do not count towards either limit.
        """
        self._namespace = namespace
        self._patience = patience or Patience()
        self._calls = asyncio.Semaphore(calls)
        self._patient_calls = asyncio.Semaphore(max(1, calls // 4))
        self._log_streams = asyncio.Semaphore(streams)
        self._watches = asyncio.Semaphore(_WATCHES)
        self._patient_streams = asyncio.Semaphore(_PATIENT_STREAMS)
        most = calls + streams + _WATCHES
        self._connection = Connection(access, most, self._patience.try_seconds, on_request)

    @contextmanager
    def giving_way(self) -> Iterator[None]:
        """Limit the calls in the block, so that most of the allowed calls are left to other work.

        Use this for work in bulk, such as stops. The limit applies to the current task and to tasks that it
        starts inside the block.
        """
        token = _gives_way.set(True)
        try:
            yield
        finally:
            _gives_way.reset(token)

    async def connect(self) -> None:
        """Check once that the cluster accepts the service.

        Raises BackendRefused if it does not; an unreachable cluster is accepted.
        """
        await self._connection.check(self._path("pods"), "GET pods")

    async def create(self, resource: Resource, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create the object, and return it as stored.

        Raises AlreadyExists if the name is taken. An earlier try of this call, whose answer was lost, may
        have created the object. So the caller has to read the object to find out whose it is.
        """
        name = manifest["metadata"]["name"]

        async def check_absent() -> None:
            try:
                await self._once("GET", self._path(resource, name), resource)
            except NotFound:
                return
            raise AlreadyExists(409, "AlreadyExists", f"{resource} {name!r} exists, perhaps by this call")

        query: Query = [("dryRun", "All")] if dry_run else []
        before_retry = None if dry_run else check_absent
        return await self._call("POST", resource, query=query, body=manifest, before_retry=before_retry)

    async def read(self, resource: Resource, name: str) -> Manifest:
        """Read the object."""
        return await self._call("GET", resource, name)

    async def pending_workloads(self, local_queue: str) -> Manifest:
        """Return the PendingWorkloadsSummary of a LocalQueue of Kueue. It has at most 1000 Workloads."""
        return await self._call("GET", LOCAL_QUEUES, f"{local_queue}/pendingworkloads")

    async def list(self, resource: Resource, selector: str, fields: str = "") -> Listing:
        """List all objects that the label and field selectors match, page by page."""
        items: list[Manifest] = []
        query: dict[str, str | int] = {
            "labelSelector": selector,
            **({"fieldSelector": fields} if fields else {}),
            "limit": _PAGE,
        }
        while True:
            answer = await self._call("GET", resource, query=list(query.items()))
            items += answer["items"]
            page = answer["metadata"]
            if not page.get("continue"):
                return Listing(items, page["resourceVersion"])
            query["continue"] = page["continue"]

    async def change(self, resource: Resource, name: str, uid: str, metadata: Mapping[str, Any]) -> Manifest:
        """Merge `metadata` into the object's metadata (JSON merge patch).

        Raises Conflict if the uid differs.
        """
        return await self._call("PATCH", resource, name, body={"metadata": {"uid": uid, **metadata}})

    async def record(self, event: Manifest) -> None:
        """Create an Event.

        The Event's name identifies its content, so AlreadyExists means that the Event is already recorded.
        """
        await self._call("POST", "events", body=event)

    async def delete(self, resource: Resource, name: str, uid: str, grace: int | None = None) -> None:
        """Delete the object and its dependents. An object that is gone, or has another uid, is ignored.

        A pod remains until it has ended, for `grace` seconds at most (None: the pod's own grace period). Use
        0 only for pods that have ended and pods on lost nodes: with 0, the pod is removed without waiting for
        its processes.
        """
        body: dict[str, Any] = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        try:
            await self._call("DELETE", resource, name, body=body)
        except (NotFound, Conflict):
            return

    async def watch(
        self,
        resource: Resource,
        selector: str,
        version: str,
        *,
        seconds: int,
        silence: float,
        fields: str = "",
    ) -> AsyncGenerator[tuple[str, Manifest], None]:
        """Yield the changes after `version` for `seconds`: ADDED, MODIFIED, DELETED or BOOKMARK, and the
        object.

        Raises Gone if the version is too old, and Unreachable if nothing arrived for `silence` seconds. The
        server sends a bookmark about once a minute.
        """
        query: Query = [
            ("watch", "true"),
            ("labelSelector", selector),
            *([("fieldSelector", fields)] if fields else ()),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", seconds),
        ]
        rest = b""
        path = self._path(resource)
        async with self._watches, self._stream("watch", path, query, silence) as pieces:
            async for piece in pieces:
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    event = from_json(line)
                    if event["type"] == "ERROR":
                        raise from_status(event["object"])
                    yield event["type"], event["object"]

    async def logs(self, pod: str, query: Query, *, silence: float) -> AsyncGenerator[bytes, None]:
        """Read the log of the pod's container, in pieces. `query` has the API's parameters."""
        path = self._path("pods", pod) + "/log"
        async with self._log_streams, self._stream("log", path, query, silence) as pieces:
            async for piece in pieces:
                yield piece

    async def execute(self, pod: str, container: str, command: Sequence[str]) -> AsyncGenerator[bytes, None]:
        """Run a command in a running container, as its user, and read what it prints to standard output.

        Raises Forbidden if the service lacks the right to do so, and Invalid if the container does not run or
        lacks the command.
        """
        query = [("container", container), ("stdout", "true"), *(("command", each) for each in command)]
        async with aclosing(self._connection.output(self._path("pods", pod) + "/exec", query)) as pieces:
            async for piece in pieces:
                yield piece

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()

    def _path(self, resource: Resource, name: str = "") -> str:
        place = f"/namespaces/{self._namespace}" if self._namespace else ""
        path = f"{_APIS.get(resource, '/api/v1')}{place}/{resource.partition('.')[0]}"
        return f"{path}/{name}" if name else path

    async def _call(
        self,
        method: str,
        resource: Resource,
        name: str = "",
        *,
        query: Query = (),
        body: Manifest | None = None,
        before_retry: Callable[[], Awaitable[None]] | None = None,
    ) -> dict[str, Any]:
        patience = self._patience
        deadline = time.monotonic() + patience.total_seconds
        backoff, failed = Backoff(patience.first_pause, patience.longest_pause), False
        while True:
            try:
                if failed and before_retry is not None:
                    await before_retry()
                answer: dict[str, Any] = from_json(
                    await self._once(method, self._path(resource, name), resource, query, body)
                )
            except (Unreachable, Conflict) as error:
                # The API server answers a create with a conflict if another request uses the same quota at
                # the same moment.
                if isinstance(error, AlreadyExists) or (isinstance(error, Conflict) and method != "POST"):
                    raise
                wait = max(error.retry_after, backoff.next())
                if time.monotonic() + wait > deadline:
                    raise
                failed = True
            else:
                return answer
            await asyncio.sleep(wait)

    async def _once(
        self, method: str, path: str, resource: str, query: Query = (), body: Manifest | None = None
    ) -> bytes:
        async with self._patient_calls if _gives_way.get() else nullcontext(), self._calls:
            return await self._connection.answer(f"{method} {resource}", method, path, query, body)

    @asynccontextmanager
    async def _stream(
        self, kind: str, path: str, query: Query, silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self._patient_streams if _gives_way.get() else nullcontext():
            response = await self._connection.open(kind, path, query, silence)
        async with self._connection.pieces(response) as pieces:
            yield pieces

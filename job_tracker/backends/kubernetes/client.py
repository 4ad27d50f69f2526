"""The edge to the API server: plain JSON out and in, every call bounded, errors of our own.

Nothing of the client library is seen outside this file and access.py, so it can be replaced. Its
models are not used: to decode a pod into them takes a hundred times longer than its JSON.
"""

import asyncio
import logging
import ssl
import time
from asyncio.sslproto import SSLProtocol
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
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client import ApiClient
from pydantic_core import from_json

from job_tracker.backends.kubernetes.access import Access, Credentials, find_credentials
from job_tracker.backends.kubernetes.api_errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    Unauthorized,
    Unreachable,
    from_answer,
    from_status,
)
from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.common.backoff import Backoff
from job_tracker.domain.errors import BackendRefused
from job_tracker.domain.observers import RequestObserver, ignore_request

log = logging.getLogger(__name__)

Resource = Literal["pods", "services", "secrets", "events"]
Query = Sequence[tuple[str, str | int]]

_LOG_STREAMS = 1024
_WATCHES = 4  # more than there are: logs never take the place of one
_PATIENT_STREAMS = 128  # being opened; more than a node has pods: one that hangs holds up no other
# asyncio has a buffer of 256 KiB for each TLS connection, of which a log that is followed is one; records of
# TLS have 16 KiB. There is no other way to say so, and it holds for all connections of this process.
SSLProtocol.max_size = 16 * 1024
_PAGE = 500
_HEADERS = {"Accept": "application/json", "User-Agent": "training-service"}
_PATCH = "application/merge-patch+json"
_gives_way = ContextVar("gives_way", default=False)
_ANONYMOUS = 'User "system:anonymous"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a call may take: each try, and all of them; and the pauses between them."""

    try_seconds: float = 10.0
    total_seconds: float = 20.0
    first_pause: float = 0.1
    longest_pause: float = 5.0


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects that a list found, and the version that a watch goes on from."""

    items: list[Manifest]
    version: str


@dataclass(slots=True)
class _Told:
    code: str = "none"


class KubernetesClient:
    """Calls to one namespace of one cluster. Connects with the first of them.

    Calls raise ApiError: Unreachable after tries with growing pauses, the others at once.
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
        """At most `calls` are in flight at once, those of `giving_way` at most a quarter; the others wait.

        At most `streams` logs are read at once. Watches have places of their own.
        """
        self._on_request = on_request
        self._access = access
        self._namespace = namespace
        self._patience = patience or Patience()
        self._calls = asyncio.Semaphore(calls)
        self._patient_calls = asyncio.Semaphore(max(1, calls // 4))
        self._connections_limit = calls + streams + _WATCHES
        self._log_streams = asyncio.Semaphore(streams)
        self._watches = asyncio.Semaphore(_WATCHES)
        self._patient_streams = asyncio.Semaphore(_PATIENT_STREAMS)
        self._connecting = asyncio.Lock()
        self._credentials: Credentials | None = None
        self._api: ApiClient | None = None

    @contextmanager
    def giving_way(self) -> Iterator[None]:
        """Leave most of the calls in flight to others: for work that comes in crowds, such as stops.

        Holds for the task that enters it, and for those that it starts within.
        """
        token = _gives_way.set(True)
        try:
            yield
        finally:
            _gives_way.reset(token)

    async def connect(self) -> None:
        """Look whether we are let in, once. Raises BackendRefused; a server that is away is no reason to."""
        try:
            from_json(await self._once("GET", self._path("pods"), "pods", [("limit", 1)]))
        except Unauthorized as error:
            raise self._refused(
                f"the API server does not accept the credentials; they may have expired ({error})"
            ) from error
        except Forbidden as error:
            why = "these credentials may not be used here"
            if _ANONYMOUS in error.message:
                why = "there are no credentials in it, or the plug-in that is to get them has failed"
            raise self._refused(f"{why}: {error}") from error
        except Unreachable as error:
            if isinstance(error.__cause__, aiohttp.ClientConnectorCertificateError):
                raise self._refused(
                    f"the API server's certificate is not to be trusted: {error.__cause__.certificate_error}"
                ) from error
            log.warning("kubernetes: %s: the API server cannot be reached yet: %s", self._access, error)
        except (ApiError, ValueError) as error:
            raise self._refused(f"what is there is no API server: {error}") from error

    def _refused(self, why: str) -> BackendRefused:
        return BackendRefused(f"kubernetes: {self._access}: {why.splitlines()[0]}")

    async def create(self, resource: Resource, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create the object, and answer with what was made of it.

        Raises AlreadyExists also if an earlier try of this very call has made it and its answer was
        lost: look at what is there.
        """
        name = manifest["metadata"]["name"]

        async def look() -> None:
            try:
                await self._once("GET", self._path(resource, name), resource)
            except NotFound:
                return
            raise AlreadyExists(409, "AlreadyExists", f"{resource} {name!r} is there, perhaps by us")

        query: Query = [("dryRun", "All")] if dry_run else []
        before_retry = None if dry_run else look
        return await self._call("POST", resource, query=query, body=manifest, before_retry=before_retry)

    async def read(self, resource: Resource, name: str) -> Manifest:
        """The object as it is."""
        return await self._call("GET", resource, name)

    async def list(self, resource: Resource, selector: str) -> Listing:
        """Every object that the label selector selects, in pages."""
        items: list[Manifest] = []
        query: dict[str, str | int] = {"labelSelector": selector, "limit": _PAGE}
        while True:
            answer = await self._call("GET", resource, query=list(query.items()))
            items += answer["items"]
            told = answer["metadata"]
            if not told.get("continue"):
                return Listing(items, told["resourceVersion"])
            query["continue"] = told["continue"]

    async def change(self, resource: Resource, name: str, uid: str, metadata: Mapping[str, Any]) -> Manifest:
        """Lay `metadata` over that of the object (a JSON merge patch). Conflict if the name is another's."""
        return await self._call("PATCH", resource, name, body={"metadata": {"uid": uid, **metadata}})

    async def record(self, event: Manifest) -> None:
        """Create an Event. Its name says what it tells, so AlreadyExists means that it is told."""
        await self._call("POST", "events", body=event)

    async def delete(self, resource: Resource, name: str, uid: str, grace: int | None = None) -> None:
        """Have the object deleted, and what it owns; one that is gone is fine, and so is another's name.

        A pod is there until it has ended, for `grace` seconds at most; 0 is for pods on lost nodes, as
        nobody then looks whether it has ended.
        """
        body: dict[str, Any] = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        try:
            await self._call("DELETE", resource, name, body=body)
        except (NotFound, Conflict):
            return

    async def watch(
        self, resource: Resource, selector: str, version: str, *, seconds: int, silence: float
    ) -> AsyncGenerator[tuple[str, Manifest], None]:
        """Changes after `version`, for `seconds`: ADDED, MODIFIED, DELETED or BOOKMARK, and the object.

        Raises Gone if the version is too old, and Unreachable if nothing was heard for `silence`
        seconds: the server tells bookmarks about once a minute.
        """
        query: Query = [
            ("watch", "true"),
            ("labelSelector", selector),
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
        """What the pod's container printed, in pieces; `query` is as the API has it."""
        path = self._path("pods", pod) + "/log"
        async with self._log_streams, self._stream("log", path, query, silence) as pieces:
            async for piece in pieces:
                yield piece

    async def close(self) -> None:
        """Close the connections."""
        if self._api is not None:
            await self._api.close()
            self._api = None

    def _path(self, resource: Resource, name: str = "") -> str:
        path = f"/api/v1/namespaces/{self._namespace}/{resource}"
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
                # A quota that others use at the same moment answers a create with a conflict.
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
        timeout = aiohttp.ClientTimeout(total=self._patience.try_seconds)
        async with self._patient_calls if _gives_way.get() else nullcontext(), self._calls:
            with _translated(), self._told(f"{method} {resource}") as told:
                response = await self._send(method, path, query, body, timeout)
                async with response:
                    data = await response.read()
                    told.code = str(response.status)
        if response.status >= 400:
            raise from_answer(response.status, data, response.headers.get("Retry-After"))
        return data

    @asynccontextmanager
    async def _stream(
        self, kind: str, path: str, query: Query, silence: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        connect = self._patience.try_seconds
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect, sock_read=silence)
        async with self._patient_streams if _gives_way.get() else nullcontext():
            with _translated(), self._told(kind) as told:
                response = await self._send("GET", path, query, None, timeout)
                told.code = str(response.status)
        try:
            if response.status >= 400:
                with _translated():
                    data = await response.read()
                raise from_answer(response.status, data, response.headers.get("Retry-After"))
            async with aclosing(_pieces(response)) as pieces:
                yield pieces
        finally:
            response.close()

    @contextmanager
    def _told(self, request: str) -> Iterator["_Told"]:
        told, started = _Told(), time.perf_counter()
        try:
            yield told
        finally:
            self._on_request(request, told.code, time.perf_counter() - started)

    async def _send(
        self, method: str, path: str, query: Query, body: Manifest | None, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        for first in (True, False):
            api = await self._connected()
            headers = {**_HEADERS, "Content-Type": _PATCH if method == "PATCH" else "application/json"}
            await api.update_params_for_auth(headers, [], ["BearerToken"], path, method, None)
            url = f"{api.configuration.host}{path}?{urlencode(query)}"
            answer = await api.rest_client.request(
                method, url, headers=headers, body=body, _request_timeout=timeout
            )
            response: aiohttp.ClientResponse = answer.response
            if response.status != 401 or not first or self._credentials is None:
                break
            response.release()
            await self._credentials.refresh()  # a token that a plug-in or a file gave us is short-lived
        return response

    async def _connected(self) -> ApiClient:
        if self._api is None:
            async with self._connecting:
                if self._api is None:
                    self._credentials = await find_credentials(self._access)
                    configuration = self._credentials.configuration
                    configuration.connection_pool_maxsize = self._connections_limit
                    try:
                        self._api = ApiClient(configuration)
                    except (OSError, ssl.SSLError) as error:
                        raise self._refused(f"its certificates cannot be used: {error}") from error
        return self._api


async def _pieces(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    pieces = response.content.iter_any()
    while True:
        with _translated():
            try:
                piece = await anext(pieces)
            except StopAsyncIteration:
                return
        yield piece


class _translated:  # noqa: N801
    """Turns whatever the libraries raise when there is no answer into Unreachable."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TimeoutError):
            raise Unreachable(0, "Timeout", "the API server did not answer in time") from error
        if isinstance(error, aiohttp.ClientError | OSError):
            raise Unreachable(0, "NoConnection", f"the API server cannot be reached: {error}") from error

"""The connection to the API server: plain JSON in and out, bounded calls, and our own exceptions.

Only this file, access.py and command_output.py import the client libraries, so they can be replaced. Models
are not used: decoding a pod into one takes a hundred times longer than decoding its JSON.
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
from job_tracker.backends.kubernetes.command_output import command_output
from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.common.backoff import Backoff
from job_tracker.domain.errors import BackendRefused
from job_tracker.domain.observers import RequestObserver, ignore_request

log = logging.getLogger(__name__)

Resource = Literal["pods", "services", "secrets", "events"]
Query = Sequence[tuple[str, str | int]]

_LOG_STREAMS = 1024
_WATCHES = 4  # more connections than are used, so that logs never block a watch
_PATIENT_STREAMS = 128  # streams being opened; more than a node has pods, so a hung node blocks no others
# asyncio has a buffer of 256 KiB for each TLS connection, and each followed log has a connection. TLS records
# are at most 16 KiB. This attribute is the only way to shrink the buffer; it applies to the whole process.
SSLProtocol.max_size = 16 * 1024
_PAGE = 500
_HEADERS = {"Accept": "application/json", "User-Agent": "training-service"}
_PATCH = "application/merge-patch+json"
_gives_way = ContextVar("gives_way", default=False)
_ANONYMOUS = 'User "system:anonymous"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Time limits of a call: for one try, for all tries together, and for the pauses between them."""

    try_seconds: float = 10.0
    total_seconds: float = 20.0
    first_pause: float = 0.1
    longest_pause: float = 5.0


@dataclass(frozen=True, slots=True)
class Listing:
    """All listed objects, and the version from which a watch continues."""

    items: list[Manifest]
    version: str


@dataclass(slots=True)
class _Outcome:
    code: str = "none"


class KubernetesClient:
    """Calls to one namespace of one cluster. The first call connects.

    Calls raise ApiError. Unreachable is raised only after several tries, other errors at once.
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
        """Limit the calls in flight to `calls`, and those of `giving_way` to a quarter of that.

        At most `streams` logs are read at once. Watches do not count towards either limit.
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
        """Leave most of the calls in flight to others, for work that comes in bulk, such as stops.

        This applies to the current task and to tasks that it starts inside the block.
        """
        token = _gives_way.set(True)
        try:
            yield
        finally:
            _gives_way.reset(token)

    async def connect(self) -> None:
        """Check once that the cluster accepts us.

        Raises BackendRefused if it does not; an unreachable cluster is accepted.
        """
        try:
            from_json(await self._once("GET", self._path("pods"), "pods", [("limit", 1)]))
        except Unauthorized as error:
            raise self._refused(
                f"the API server rejects the credentials; they may have expired ({error})"
            ) from error
        except Forbidden as error:
            reason = "the credentials do not give access to this namespace"
            if _ANONYMOUS in error.message:
                reason = "it has no credentials, or the plug-in that provides them has failed"
            raise self._refused(f"{reason}: {error}") from error
        except Unreachable as error:
            if isinstance(error.__cause__, aiohttp.ClientConnectorCertificateError):
                raise self._refused(
                    f"the API server's certificate is not trusted: {error.__cause__.certificate_error}"
                ) from error
            log.warning(
                "kubernetes: %s: the API server is unreachable; trying again later: %s", self._access, error
            )
        except (ApiError, ValueError) as error:
            raise self._refused(f"the server is not a Kubernetes API server: {error}") from error

    def _refused(self, reason: str) -> BackendRefused:
        return BackendRefused(f"kubernetes: {self._access}: {reason.splitlines()[0]}")

    async def create(self, resource: Resource, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create the object, and return it as stored.

        Raises AlreadyExists, even if an earlier try of this call created the object and the answer was lost.
        The caller has to read the object to find out.
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

    async def list(self, resource: Resource, selector: str) -> Listing:
        """List all objects that the label selector matches, page by page."""
        items: list[Manifest] = []
        query: dict[str, str | int] = {"labelSelector": selector, "limit": _PAGE}
        while True:
            answer = await self._call("GET", resource, query=list(query.items()))
            items += answer["items"]
            page = answer["metadata"]
            if not page.get("continue"):
                return Listing(items, page["resourceVersion"])
            query["continue"] = page["continue"]

    async def change(self, resource: Resource, name: str, uid: str, metadata: Mapping[str, Any]) -> Manifest:
        """Merge `metadata` into the object's (JSON merge patch). Raises Conflict if the uid differs."""
        return await self._call("PATCH", resource, name, body={"metadata": {"uid": uid, **metadata}})

    async def record(self, event: Manifest) -> None:
        """Create an Event.

        Its name identifies its content, so AlreadyExists means that it is already recorded.
        """
        await self._call("POST", "events", body=event)

    async def delete(self, resource: Resource, name: str, uid: str, grace: int | None = None) -> None:
        """Delete the object and its dependents. An object that is gone, or has another uid, is ignored.

        A pod remains until it has ended, for `grace` seconds at most. Use 0 only for pods that have ended
        and for lost nodes: it removes the pod without waiting for its processes.
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
        """Yield changes after `version`, for `seconds`: ADDED, MODIFIED, DELETED or BOOKMARK, and the object.

        Raises Gone if the version is too old, and Unreachable if nothing arrived for `silence` seconds.
        The server sends a bookmark about once a minute.
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
        """Read the log of the pod's container, in pieces. `query` has the API's parameters."""
        path = self._path("pods", pod) + "/log"
        async with self._log_streams, self._stream("log", path, query, silence) as pieces:
            async for piece in pieces:
                yield piece

    async def execute(self, pod: str, container: str, command: Sequence[str]) -> AsyncGenerator[bytes, None]:
        """Run a command in a running container, as its user, and read what it prints to standard output.

        Raises Forbidden without the right to, and Invalid if the container does not run or lacks the command.
        """
        query = [("container", container), ("stdout", "true"), *(("command", each) for each in command)]
        path, timeout = self._path("pods", pod) + "/exec", self._patience.try_seconds
        with _translated(), self._measured("exec") as outcome:
            rest, url, headers = await self._prepared("GET", path, query)
            async with aclosing(command_output(rest, url, headers, timeout)) as pieces:
                outcome.code = "101"
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
                # The API server answers a create with a conflict if others use the same quota at the same
                # moment.
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
            with _translated(), self._measured(f"{method} {resource}") as outcome:
                response = await self._send(method, path, query, body, timeout)
                async with response:
                    data = await response.read()
                    outcome.code = str(response.status)
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
            with _translated(), self._measured(kind) as outcome:
                response = await self._send("GET", path, query, None, timeout)
                outcome.code = str(response.status)
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
    def _measured(self, request: str) -> Iterator["_Outcome"]:
        outcome, started = _Outcome(), time.perf_counter()
        try:
            yield outcome
        finally:
            self._on_request(request, outcome.code, time.perf_counter() - started)

    async def _send(
        self, method: str, path: str, query: Query, body: Manifest | None, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        for first in (True, False):
            rest, url, headers = await self._prepared(method, path, query)
            answer = await rest.request(method, url, headers=headers, body=body, _request_timeout=timeout)
            response: aiohttp.ClientResponse = answer.response
            if response.status != 401 or not first or self._credentials is None:
                break
            response.release()
            await self._credentials.refresh()  # tokens from a plug-in or a file are short-lived
        return response

    async def _prepared(self, method: str, path: str, query: Query) -> tuple[Any, str, dict[str, str]]:
        """Return the connections, the address and the headers of a call."""
        api = await self._connected()
        headers = {**_HEADERS, "Content-Type": _PATCH if method == "PATCH" else "application/json"}
        await api.update_params_for_auth(headers, [], ["BearerToken"], path, method, None)
        return api.rest_client, f"{api.configuration.host}{path}?{urlencode(query)}", headers

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
                        raise self._refused(f"the certificates cannot be loaded: {error}") from error
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
    """Turns all errors of the libraries that mean "no answer" into Unreachable."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TimeoutError):
            raise Unreachable(0, "Timeout", "the API server did not answer in time") from error
        if isinstance(error, aiohttp.ClientError | OSError):
            raise Unreachable(0, "NoConnection", f"the API server cannot be reached: {error}") from error

"""Sends requests with credentials to the API server, measures their time, and raises errors of this project.

Only this file, access.py and command_output.py import the client libraries, so these libraries can be
replaced. The Kubernetes library's classes for objects are not used: decoding a pod into such a class takes a
hundred times longer than decoding its JSON.
"""

import asyncio
import logging
import ssl
import time
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client import ApiClient
from pydantic_core import from_json

from job_tracker.backends.kubernetes.access import Access, Credentials, find_credentials
from job_tracker.backends.kubernetes.api_errors import (
    ApiError,
    Forbidden,
    Unauthorized,
    Unreachable,
    from_answer,
)
from job_tracker.backends.kubernetes.command_output import command_output
from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.domain.errors import BackendRefused
from job_tracker.domain.observers import RequestObserver, ignore_request

Query = Sequence[tuple[str, str | int]]

# asyncio has a buffer of 256 KiB for each TLS connection, and each followed log has a connection. 16 KiB
# suffice, because TLS records are not larger. This attribute is the only way to shrink the buffer; it applies
# to the whole process.
SSLProtocol.max_size = 16 * 1024
_HEADERS = {"Accept": "application/json", "User-Agent": "training-service"}
_PATCH = "application/merge-patch+json"
_ANONYMOUS = 'User "system:anonymous"'

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Outcome:
    code: str = "none"


class Connection:
    """Sends requests to one API server. The first request connects.

    Requests raise ApiError for an error answer, and its subclass Unreachable if there is no answer. A request
    is repeated only if its credentials were refused (status 401). It is then repeated once, with fresh
    credentials. Requests raise BackendRefused if no credentials can be read, and BackendUnavailable if fresh
    ones cannot be read.
    """

    def __init__(
        self,
        access: Access,
        most: int,
        try_seconds: float,
        on_request: RequestObserver = ignore_request,
    ) -> None:
        """Use at most `most` connections at once. A try takes at most `try_seconds`."""
        self._access = access
        self._most = most
        self._try_seconds = try_seconds
        self._on_request = on_request
        self._connecting = asyncio.Lock()
        self._credentials: Credentials | None = None
        self._api: ApiClient | None = None

    async def check(self, path: str, request: str) -> None:
        """Check that the cluster accepts the service, by listing the resource at `path`.

        Raises BackendRefused if it does not, if the server's certificate is not trusted, or if the server is
        not a Kubernetes API server. An unreachable cluster is accepted.
        """
        try:
            from_json(await self.answer(request, "GET", path, [("limit", 1)]))
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

    async def answer(
        self, request: str, method: str, path: str, query: Query = (), body: Manifest | None = None
    ) -> bytes:
        """Return the body of the answer. The duration is measured under the name `request`."""
        timeout = aiohttp.ClientTimeout(total=self._try_seconds)
        with _translated(), self._measured(request) as outcome:
            response = await self._send(method, path, query, body, timeout)
            async with response:
                data = await response.read()
                outcome.code = str(response.status)
        if response.status >= 400:
            raise from_answer(response.status, data, response.headers.get("Retry-After"))
        return data

    async def open(self, request: str, path: str, query: Query, silence: float) -> aiohttp.ClientResponse:
        """Open a stream, which `pieces` then reads.

        The time until the stream begins is measured under the name `request`. This method and `pieces` raise
        Unreachable if nothing arrives for `silence` seconds.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._try_seconds, sock_read=silence)
        with _translated(), self._measured(request) as outcome:
            response = await self._send("GET", path, query, None, timeout)
            outcome.code = str(response.status)
        return response

    @asynccontextmanager
    async def pieces(self, response: aiohttp.ClientResponse) -> AsyncIterator[AsyncIterator[bytes]]:
        """Read a stream in pieces, and close it after the block. Raises ApiError for an error answer."""
        try:
            if response.status >= 400:
                with _translated():
                    data = await response.read()
                raise from_answer(response.status, data, response.headers.get("Retry-After"))
            async with aclosing(_pieces(response)) as pieces:
                yield pieces
        finally:
            response.close()

    async def output(self, path: str, query: Query) -> AsyncGenerator[bytes, None]:
        """Read the output of a command that the request runs; see `command_output`."""
        with _translated(), self._measured("exec") as outcome:
            rest, url, headers = await self._prepared("GET", path, query)
            async with aclosing(command_output(rest, url, headers, self._try_seconds)) as pieces:
                outcome.code = "101"
                async for piece in pieces:
                    yield piece

    async def close(self) -> None:
        """Close the connections."""
        if self._api is not None:
            await self._api.close()
            self._api = None

    def _refused(self, reason: str) -> BackendRefused:
        return BackendRefused(f"kubernetes: {self._access}: {reason.splitlines()[0]}")

    @contextmanager
    def _measured(self, request: str) -> Iterator[_Outcome]:
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
        """Return the REST client of the library, and the URL and the headers of a call."""
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
                    configuration.connection_pool_maxsize = self._most
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

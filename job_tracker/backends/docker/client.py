"""The edge to the engine: plain JSON out and in, every call bounded in time, errors of our own.

The client library blocks, so its calls are made in threads. Nothing of it is seen outside this file, so
it can be replaced.
"""

import asyncio
import functools
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any, TypeVar

import docker
import requests
from docker.errors import APIError, DockerException
from docker.utils import kwargs_from_env, parse_repository_tag

from job_tracker.backends.docker.engine_errors import EngineError, Refused, Unreachable, from_answer
from job_tracker.backends.docker.streams import ClosableIterator, streamed
from job_tracker.domain.errors import BackendRefused

log = logging.getLogger(__name__)

T = TypeVar("T")

Json = Mapping[str, Any]

_OLDEST_API = (1, 41)  # of Engine 20.10: the first that knows host-gateway
_PULL_SILENCE = 300.0
_MOST_CALLS = 16  # in flight at once
# What the backend follows. The others are many: each `docker exec` is two.
_EVENTS = ["create", "start", "die", "destroy", "pause", "unpause"]


class DockerClient:
    """Calls to one engine. Connects with the first of them; they raise EngineError."""

    def __init__(self, base_url: str | None, *, call_seconds: int = 30) -> None:
        """Without a URL, the engine is where `docker` would look. Calls take `call_seconds` at most."""
        self._base_url = base_url
        self._place = base_url or os.environ.get("DOCKER_HOST") or "the engine of this machine"
        self._seconds = call_seconds
        self._threads = ThreadPoolExecutor(_MOST_CALLS, thread_name_prefix="docker call")
        self._connecting = asyncio.Lock()
        self._api: docker.APIClient | None = None

    async def connect(self) -> None:
        """Look whether we are let in, once. Raises BackendRefused; an engine that is away is no reason to."""
        try:
            told = await self._call(lambda api: api.version())
        except Unreachable as error:
            if isinstance(error.__cause__, Exception) and "Permission denied" in str(error.__cause__):
                raise self._refused("this account may not use its socket (see the group docker)") from error
            log.warning("docker: %s: the engine cannot be reached yet: %s", self._place, error)
            return
        except EngineError as error:
            raise self._refused(f"it does not let us in: {error.message}") from error
        version = tuple(int(part) for part in str(told["ApiVersion"]).split("."))
        if version < _OLDEST_API:
            raise self._refused(
                f"its API is {told['ApiVersion']}; Engine 20.10 (1.41) is the oldest that will do"
            )

    async def ping(self) -> None:
        """Return if the engine answers."""
        await self._call(lambda api: api.ping())

    async def create_container(self, name: str, request: Json) -> str:
        """Create a container of this name, and answer with its id. Conflict if the name is taken."""
        answer = await self._call(lambda api: api.create_container_from_config(dict(request), name))
        return str(answer["Id"])

    async def containers(self, labels: Sequence[str]) -> list[Json]:
        """All containers with these labels, as a list has them."""
        filters = {"label": list(labels)}
        return await self._call(lambda api: api.containers(all=True, filters=filters))

    async def inspect(self, container: str) -> Json:
        """The container of this id or name, as an inspection has it."""
        return await self._call(lambda api: api.inspect_container(container))

    async def start(self, container: str) -> None:
        """Start it; one that runs is fine."""
        await self._call(lambda api: api.start(container))

    async def kill(self, container: str, signal: str) -> None:
        """Send a signal. Conflict if it does not run."""
        await self._call(lambda api: api.kill(container, signal))

    async def remove(self, container: str) -> None:
        """Remove a container that does not run, and its anonymous volumes."""
        await self._call(lambda api: api.remove_container(container, v=True))

    async def create_network(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a bridge network. Conflict if the name is taken."""
        await self._call(
            lambda api: api.create_network(name, driver="bridge", check_duplicate=True, labels=dict(labels)),
        )

    async def networks(self, labels: Sequence[str]) -> list[Json]:
        """All networks with these labels."""
        filters = {"label": list(labels)}
        return await self._call(lambda api: api.networks(filters=filters))

    async def network(self, name: str) -> Json:
        """The network of this name."""
        return await self._call(lambda api: api.inspect_network(name))

    async def remove_network(self, network: str) -> None:
        """Remove a network that no running container is on."""
        await self._call(lambda api: api.remove_network(network))

    async def create_volume(self, name: str, labels: Mapping[str, str]) -> Json:
        """The volume of this name: a new one, or the one that is there, with its own labels."""
        return await self._call(lambda api: api.create_volume(name, labels=dict(labels)))

    async def volumes(self, labels: Sequence[str]) -> list[Json]:
        """All volumes with these labels."""
        filters = {"label": list(labels)}
        answer = await self._call(lambda api: api.volumes(filters=filters))
        return answer["Volumes"] or []

    async def remove_volume(self, name: str) -> None:
        """Remove a volume that no container has."""
        await self._call(lambda api: api.remove_volume(name))

    async def has_image(self, image: str) -> bool:
        """Whether the engine has it."""
        try:
            await self._call(lambda api: api.inspect_image(image))
        except EngineError as error:
            if error.status == requests.codes.not_found:
                return False
            raise
        return True

    async def pull(self, image: str) -> None:
        """Have the engine pull the image, however long that takes. Raises Refused if it cannot."""
        repository, tag = parse_repository_tag(image)
        api = await self._connected()

        def progress() -> ClosableIterator[Json]:
            return _Plain(api.pull(repository, tag or "latest", stream=True, decode=True))

        async with aclosing(self._streamed(progress, _PULL_SILENCE)) as steps:
            async for step in steps:
                if "error" in step:
                    raise Refused(requests.codes.server_error, str(step["error"]))

    async def events(self, *, since: int) -> AsyncGenerator[Json, None]:
        """What becomes of containers and volumes, from the second `since` (of 1970) on."""
        api = await self._connected()
        filters = {"type": ["container", "volume"], "event": _EVENTS}
        events = self._streamed(lambda: api.events(since=since, filters=filters, decode=True), None)
        async with aclosing(events):
            async for event in events:
                yield event

    async def logs(
        self,
        container: str,
        *,
        follow: bool,
        since: int | None,
        tail_lines: int | None,
        silence: float | None,
    ) -> AsyncGenerator[bytes, None]:
        """What the container printed: lines, or parts of long ones, each after its time."""
        api = await self._connected()
        how: dict[str, Any] = {"stream": True, "timestamps": True, "follow": follow}
        how["tail"] = "all" if tail_lines is None else tail_lines
        how["since"] = since
        pieces = self._streamed(lambda: api.logs(container, **how), silence)
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    async def close(self) -> None:
        """Close the connections. Calls that are in flight end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._api is not None:
            self._api.close()
            self._api = None

    def _refused(self, why: str) -> BackendRefused:
        return BackendRefused(f"docker: {self._place}: {why}")

    async def _streamed(
        self, open_stream: Callable[[], ClosableIterator[T]], silence: float | None
    ) -> AsyncGenerator[T, None]:
        try:
            async with aclosing(streamed(open_stream, silence)) as items:
                async for item in items:
                    yield item
        except (DockerException, requests.RequestException, OSError, ValueError) as error:
            raise _translated(error) from error

    async def _call(self, call: Callable[[docker.APIClient], T]) -> T:
        api = await self._connected()
        return await self._in_thread(functools.partial(call, api))

    async def _in_thread(self, call: Callable[[], T]) -> T:
        try:
            # The library's own bound is on each read; an answer that trickles is given up here.
            async with asyncio.timeout(2 * self._seconds):
                return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except (DockerException, requests.RequestException, OSError, ValueError) as error:
            raise _translated(error) from error

    async def _connected(self) -> docker.APIClient:
        if self._api is None:
            async with self._connecting:
                if self._api is None:
                    self._api = await self._in_thread(self._connection)
        return self._api

    def _connection(self) -> "_Api":
        environment = dict(os.environ)
        if self._base_url is not None:
            environment["DOCKER_HOST"] = self._base_url
        return _Api(
            version="auto",
            timeout=self._seconds,
            user_agent="training-service",
            max_pool_size=_MOST_CALLS,
            **kwargs_from_env(environment=environment),
        )


class _Api(docker.APIClient):
    """The library's client, without a look at the container between a log's request and its reading.

    If the container is gone by then, the library forgets the answer, whose connection stays open until
    the garbage collector finds it.
    """

    def _check_is_tty(self, _container: str) -> bool:
        return False  # none of ours has a terminal


class _Plain:
    """A generator of the library as a stream; it is closed once nobody reads it any more."""

    def __init__(self, items: Any) -> None:
        self._items = items

    def __iter__(self) -> Any:
        return iter(self._items)

    def close(self) -> None:
        """Nothing: a pull goes on by itself, and tells so until it is done."""


def _translated(error: Exception) -> EngineError:
    """Whatever the libraries raise, as ours."""
    if isinstance(error, APIError):
        status = error.status_code or 0
        return from_answer(status, str(error.explanation or error))
    if isinstance(error, TimeoutError | requests.Timeout):
        return Unreachable("it did not answer in time")
    return Unreachable(f"it cannot be reached: {error}")

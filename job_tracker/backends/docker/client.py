"""Calls the API of the Docker engine, in JSON. Calls raise errors of this project.

Each call has a time-out. Only streams may be silent for longer: pulls and archives for some minutes, logs for
as long as the caller allows, and events for any time.

aiohttp makes the calls. The Docker library is used only to split the names of images, and to find the
engine's address, its certificates and the logins to registries as the docker command does.
"""

import asyncio
import json
import logging
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import quote

import aiohttp
from docker import auth
from docker.errors import DockerException
from docker.tls import TLSConfig
from docker.utils import kwargs_from_env, parse_host, parse_repository_tag

from job_tracker.backends.docker.engine_errors import EngineError, NotFound, Refused, Unreachable, from_answer
from job_tracker.domain.errors import BackendRefused, TrackerError

log = logging.getLogger(__name__)

Json = Mapping[str, Any]
Query = Mapping[str, str]

_OLDEST_API = (1, 41)  # the API of Engine 20.10, the first with host-gateway
_PULL_SILENCE = 300.0
_MOST_READS = 16  # reads in flight at once; streams do not count
# The engine does most of the work of starts and removals one after another, in about 1 s for each on a busy
# machine. If it gets many at once, each takes as long as all of them, and exceeds the time-out of a call.
_MOST_CHANGES = 4
_MOST_ARCHIVES = 4  # archives sent at once, each with a few MiB in memory
_FIRST_ERROR, _SERVER_ERROR = 400, 500
_UNIX = "http+unix://"
_FRAME_HEAD = 8
# The events that the cache needs. There are many other events: each `docker exec` causes two.
_EVENTS = ["create", "start", "die", "destroy", "pause", "unpause"]


class DockerClient:
    """Calls to one engine. The first call connects. Calls raise EngineError."""

    def __init__(self, base_url: str | None, *, call_seconds: int = 30) -> None:
        """Without a URL, use the engine that DOCKER_HOST names, or else the engine of this machine.

        A call may take at most `call_seconds`; streams may take longer.
        """
        self._url = base_url
        self._place = base_url or os.environ.get("DOCKER_HOST") or "the engine of this machine"
        self._seconds = call_seconds
        self._reads = asyncio.Semaphore(_MOST_READS)
        self._changes = asyncio.Semaphore(_MOST_CHANGES)
        self._archives = asyncio.Semaphore(_MOST_ARCHIVES)
        self._session: aiohttp.ClientSession | None = None
        self._version = ""

    async def connect(self) -> None:
        """Check that the engine accepts calls.

        Raises BackendRefused if the engine runs, but refuses calls, or if its API is too old. An unreachable
        engine is accepted.
        """
        try:
            version = await self._api_version()
        except Unreachable as error:
            if isinstance(getattr(error.__cause__, "os_error", None), PermissionError):
                raise self._refused("this account may not use its socket (see the group docker)") from error
            log.warning("docker: %s: the engine cannot be reached yet: %s", self._place, error)
            return
        except EngineError as error:
            raise self._refused(f"it does not accept calls: {error.message}") from error
        if tuple(int(part) for part in version.split(".")) < _OLDEST_API:
            raise self._refused(f"its API version is {version}; at least 1.41 (Engine 20.10) is required")

    async def create_container(self, name: str, request: Json) -> str:
        """Create a container, and return its id. Raises Conflict if the name is taken."""
        answer = await self._call("POST", "/containers/create", {"name": name}, request)
        return str(answer["Id"])

    async def containers(self, labels: Sequence[str]) -> list[Json]:
        """List all containers with these labels, even those that do not run."""
        found: list[Json] = await self._call("GET", "/containers/json", {"all": "1", **_with(labels)})
        return found

    async def inspect(self, container: str) -> Json:
        """Inspect the container with this id or name."""
        found: Json = await self._call("GET", f"/containers/{container}/json")
        return found

    async def put_archive(self, container: str, folder: str, archive: AsyncIterator[bytes]) -> None:
        """Unpack a tar archive into a folder of a container that was not started.

        A read-only container accepts files only in its volumes. Raises Unreachable if the engine is silent
        for some minutes. An OSError or TrackerError of `archive` is raised as it is.
        """
        path = f"/v{await self._api_version()}/containers/{container}/archive"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._seconds, sock_read=_PULL_SILENCE)
        headers = {"Content-Type": "application/x-tar"}
        failures: list[Exception] = []

        async def sent() -> AsyncIterator[bytes]:
            try:
                async for piece in archive:
                    yield piece
            except (OSError, TrackerError) as error:
                failures.append(error)
                raise

        async with self._archives:
            try:
                with _translated():
                    async with self._answer(
                        "PUT", path, {"path": folder}, timeout, headers=headers, data=sent()
                    ) as response:
                        await response.read()
            except Exception:
                if failures:
                    raise failures[0] from None
                raise

    async def start(self, container: str) -> None:
        """Start a container. A running container is not changed."""
        await self._call("POST", f"/containers/{container}/start")

    async def kill(self, container: str, signal: str) -> None:
        """Send a signal to a container. Raises Conflict if it is not running."""
        await self._call("POST", f"/containers/{container}/kill", {"signal": signal})

    async def remove(self, container: str) -> None:
        """Remove a container that is not running, and its anonymous volumes."""
        await self._call("DELETE", f"/containers/{container}", {"v": "1"})

    async def create_network(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a bridge network. Raises Conflict if the name is taken."""
        request = {"Name": name, "Driver": "bridge", "CheckDuplicate": True, "Labels": dict(labels)}
        await self._call("POST", "/networks/create", body=request)

    async def networks(self, labels: Sequence[str]) -> list[Json]:
        """List all networks with these labels."""
        found: list[Json] = await self._call("GET", "/networks", _with(labels))
        return found

    async def network(self, name: str) -> Json:
        """Inspect the network with this name."""
        found: Json = await self._call("GET", f"/networks/{name}")
        return found

    async def remove_network(self, network: str) -> None:
        """Remove a network that no running container uses."""
        await self._call("DELETE", f"/networks/{network}")

    async def create_volume(self, name: str, labels: Mapping[str, str]) -> Json:
        """Create a volume, and return it. An existing volume of this name is returned with its own labels."""
        request = {"Name": name, "Labels": dict(labels)}
        volume: Json = await self._call("POST", "/volumes/create", body=request)
        return volume

    async def volumes(self, labels: Sequence[str]) -> list[Json]:
        """List all volumes with these labels."""
        answer = await self._call("GET", "/volumes", _with(labels))
        return answer["Volumes"] or []

    async def remove_volume(self, name: str) -> None:
        """Remove a volume that no container uses."""
        await self._call("DELETE", f"/volumes/{name}")

    async def image(self, image: str) -> Json:
        """Inspect the image with this id or name."""
        found: Json = await self._call("GET", f"/images/{quote(image, safe='/:@')}/json")
        return found

    async def images(self, labels: Sequence[str]) -> list[Json]:
        """List all images with these labels."""
        found: list[Json] = await self._call("GET", "/images/json", _with(labels))
        return found

    async def tag(self, image: str, repository: str, tag: str) -> None:
        """Give an image the name REPOSITORY:TAG.

        This sets the time at which the image was last tagged, even if the image has the name already.
        """
        await self._call("POST", f"/images/{quote(image, safe='/:@')}/tag", {"repo": repository, "tag": tag})

    async def commit(self, container: str, repository: str, tag: str) -> None:
        """Make an image of a container that was not started.

        The new image has the configuration of the container, such as its labels.
        """
        query = {"container": container, "repo": repository, "tag": tag, "pause": "0"}
        await self._call("POST", "/commit", query, {})

    async def remove_image(self, image: str) -> None:
        """Remove an image. Raises Conflict if a container uses it."""
        await self._call("DELETE", f"/images/{quote(image, safe='/:@')}", {"noprune": "1"})

    async def has_image(self, image: str) -> bool:
        """Return whether the engine has the image."""
        try:
            await self.image(image)
        except NotFound:
            return False
        return True

    async def pull(self, image: str) -> None:
        """Pull the image, with this account's login to the registry if there is one.

        Raises Refused or NotFound if the engine cannot pull it.
        """
        repository, tag = parse_repository_tag(image)
        with _translated():
            headers = await asyncio.to_thread(_login, repository)
        query = {"fromImage": repository, "tag": tag or "latest"}
        steps = self._stream("POST", "/images/create", query, silence=_PULL_SILENCE, headers=headers)
        async with aclosing(_objects(steps)) as each:
            async for step in each:
                if "error" in step:
                    raise Refused(_SERVER_ERROR, str(step["error"]))

    async def events(self, *, since: int) -> AsyncGenerator[Json, None]:
        """Follow the events of containers and volumes from `since` on, in seconds since 1970."""
        filters = json.dumps({"type": ["container", "volume"], "event": _EVENTS})
        events = self._stream("GET", "/events", {"since": str(since), "filters": filters}, silence=None)
        async with aclosing(_objects(events)) as each:
            async for event in each:
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
        """Read what the container printed: lines, or parts of long lines, each preceded by its time.

        `since` is in seconds since 1970. Raises Unreachable if the stream is silent for `silence` seconds.
        """
        query = {"stdout": "1", "stderr": "1", "timestamps": "1", "follow": "1" if follow else "0"}
        query["tail"] = "all" if tail_lines is None else str(tail_lines)
        if since is not None:
            query["since"] = str(since)
        rest = b""
        async with aclosing(
            self._stream("GET", f"/containers/{container}/logs", query, silence=silence)
        ) as pieces:
            async for piece in pieces:
                frames, rest = _frames(rest + piece)
                for frame in frames:
                    yield frame

    async def execute(self, container: str, command: Sequence[str]) -> AsyncGenerator[bytes, None]:
        """Run a command in a running container, as its user, and read what it prints to standard output.

        Raises Conflict if the container does not run.
        """
        request = {"AttachStdout": True, "Cmd": list(command)}
        started = await self._call("POST", f"/containers/{container}/exec", body=request)
        rest, path = b"", f"/exec/{started['Id']}/start"
        async with aclosing(
            self._stream("POST", path, {}, silence=self._seconds, json={"Detach": False, "Tty": False})
        ) as pieces:
            async for piece in pieces:
                frames, rest = _frames(rest + piece)
                for frame in frames:
                    yield frame

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _refused(self, why: str) -> BackendRefused:
        return BackendRefused(f"docker: {self._place}: {why}")

    async def _call(
        self, method: str, path: str, query: Query | None = None, body: Json | None = None
    ) -> Any:
        """Make a call, and return the JSON of the answer; None if the answer has no content."""
        data = await self._read(method, f"/v{await self._api_version()}{path}", query, body)
        return _parsed(data) if data else None

    async def _api_version(self) -> str:
        """Return the version of the engine's API. The engine is asked for it only once."""
        if not self._version:
            self._version = str(_parsed(await self._read("GET", "/version"))["ApiVersion"])
        return self._version

    async def _read(
        self, method: str, path: str, query: Query | None = None, body: Json | None = None
    ) -> bytes:
        turns = self._reads if method == "GET" else self._changes
        timeout = aiohttp.ClientTimeout(total=self._seconds)
        with _translated():
            async with turns, self._answer(method, path, query, timeout, json=body) as response:
                return await response.read()

    async def _stream(
        self,
        method: str,
        path: str,
        query: Query,
        *,
        silence: float | None,
        **more: Any,
    ) -> AsyncGenerator[bytes, None]:
        """Make a call, and yield the answer in pieces.

        Raises Unreachable if the connection breaks, or is silent for `silence` seconds.
        """
        path = f"/v{await self._api_version()}{path}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._seconds, sock_read=silence)
        with _translated():
            async with self._answer(method, path, query, timeout, **more) as response:
                async for piece in response.content.iter_any():
                    yield piece

    @asynccontextmanager
    async def _answer(
        self, method: str, path: str, query: Query | None, timeout: aiohttp.ClientTimeout, **more: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            self._session = _session(self._url)
        async with self._session.request(method, path, params=query, timeout=timeout, **more) as response:
            if response.status >= _FIRST_ERROR:
                raise from_answer(response.status, _message(await response.text(errors="replace")))
            yield response


def _session(url: str | None) -> aiohttp.ClientSession:
    """Open a session with the engine at the URL.

    Without a URL, the environment variables of the docker command name the engine.

    The number of connections is not limited: each log that is followed takes one.
    """
    settings = kwargs_from_env(environment={**os.environ, **({"DOCKER_HOST": url} if url else {})})
    tls: TLSConfig | None = settings.get("tls")
    base = str(parse_host(settings.get("base_url"), tls=tls is not None))
    headers = {"User-Agent": "training-service"}
    if base.startswith(_UNIX):
        socket = aiohttp.UnixConnector(base.removeprefix(_UNIX), limit=0)
        return aiohttp.ClientSession("http://docker", connector=socket, headers=headers)
    connector = aiohttp.TCPConnector(limit=0, ssl=True if tls is None else _ssl_context(tls))
    return aiohttp.ClientSession(base, connector=connector, headers=headers, trust_env=True)


def _ssl_context(tls: TLSConfig) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca_cert if tls.verify else None)
    if not tls.verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if tls.cert:
        context.load_cert_chain(*tls.cert)
    return context


def _login(repository: str) -> dict[str, str]:
    """Return the header with the login that `docker login` stored. This may run a credential helper."""
    registry, _ = auth.resolve_repository_name(repository)
    login = auth.resolve_authconfig(auth.load_config(), registry)
    return {"X-Registry-Auth": auth.encode_header(login).decode()} if login else {}


def _with(labels: Sequence[str]) -> Query:
    return {"filters": json.dumps({"label": list(labels)})}


def _frames(data: bytes) -> tuple[list[bytes], bytes]:
    """Split a piece of a log into frames. Return their contents, and the incomplete frame at the end.

    A frame begins with 8 bytes. The last four of them are the length of the frame's content.
    """
    frames, begin = [], 0
    while len(data) >= begin + _FRAME_HEAD:
        content = begin + _FRAME_HEAD
        end = content + int.from_bytes(data[content - 4 : content])
        if end > len(data):
            break
        frames.append(data[content:end])
        begin = end
    return frames, data[begin:]


async def _objects(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[Json, None]:
    """Parse the JSON objects of a stream. Each object is on a line of its own."""
    rest = b""
    async with aclosing(pieces):
        async for piece in pieces:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield _parsed(line)


def _parsed(text: bytes) -> Any:
    with _translated():
        return json.loads(text)


def _message(text: str) -> str:
    """Return the message in the body of an error. The body is plain text if a proxy wrote it."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, LookupError, TypeError):
        return text.strip()


@contextmanager
def _translated() -> Iterator[None]:
    """Turn the libraries' errors in the block into Unreachable."""
    try:
        yield
    except TimeoutError as error:
        raise Unreachable("it did not answer in time") from error
    except (DockerException, aiohttp.ClientError, OSError, ValueError) as error:
        raise Unreachable(f"it cannot be reached: {error}") from error

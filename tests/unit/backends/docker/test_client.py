"""The client with a scripted engine, over a Unix socket and over TLS."""

import asyncio
import base64
import gc
import json
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from aiohttp import web

from job_tracker.backends.docker.backend import DockerBackend
from job_tracker.backends.docker.client import DockerClient
from job_tracker.backends.docker.engine_errors import Conflict, EngineError, NotFound, Refused, Unreachable
from job_tracker.backends.docker.settings import DockerSettings
from job_tracker.domain.errors import BackendRefused
from job_tracker.logs.spool import FolderSpool
from tests.support.patience import PATIENCE

LINE = b"2026-11-21T12:00:00.000000000Z hello\n"


def frame(content: bytes) -> bytes:
    return bytes([1, 0, 0, 0]) + len(content).to_bytes(4) + content


class Engine:
    """An engine that sends scripted answers, and records its requests."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"unix://{path}"
        self.api_version = "1.43"
        self.answer: Callable[[web.Request], web.Response] = lambda _: web.json_response([])
        self.pieces: list[bytes] = []
        self.stays_open = False
        self.breaks = False
        self.open_streams = 0
        self.all_closed = asyncio.Event()
        self.requests: list[web.Request] = []

    async def start(self, tls: ssl.SSLContext | None = None) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/version", self._version)
        for path in (r"/v{_:[\d.]+}/containers/{_id}/logs", r"/v{_:[\d.]+}/events"):
            app.router.add_get(path, self._stream)
        app.router.add_post(r"/v{_:[\d.]+}/images/create", self._stream)
        app.router.add_route("*", r"/v{_:[\d.]+}/{rest:.*}", self._answered)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
        await runner.setup()
        if tls is None:
            await web.UnixSite(runner, str(self.path)).start()
        else:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
            self.url = f"tcp://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"ApiVersion": self.api_version})

    async def _answered(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        return self.answer(request)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        response = web.StreamResponse()
        self.open_streams += 1
        try:
            await response.prepare(request)
            for piece in self.pieces:
                await response.write(piece)
                await asyncio.sleep(0)
            if self.breaks and request.transport:
                request.transport.abort()
            if self.stays_open:
                await asyncio.Event().wait()
        finally:
            self.open_streams -= 1
            if not self.open_streams:
                self.all_closed.set()
        return response


class BusyEngine(Engine):
    """An engine that ends no change before `goes_on` is set."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.changes, self.most_changes = 0, 0
        self.has_four = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def _answered(self, request: web.Request) -> web.Response:
        if request.method != "GET":
            self.changes += 1
            self.most_changes = max(self.changes, self.most_changes)
            if self.changes == 4:
                self.has_four.set()
            await self.goes_on.wait()
            self.changes -= 1
        return await super()._answered(request)


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    made = Engine(tmp_path / "docker.sock")
    runner = await made.start()
    yield made
    await runner.cleanup()


@pytest.fixture
async def client(engine: Engine) -> AsyncIterator[DockerClient]:
    made = DockerClient(engine.url, call_seconds=60)
    yield made
    await made.close()


async def logs(client: DockerClient, silence: float = 60, *, follow: bool = True) -> list[bytes]:
    """Read all lines of a log."""
    lines = client.logs("c", follow=follow, since=None, tail_lines=None, silence=silence)
    async with aclosing(lines) as each:
        return [line async for line in each]


@pytest.mark.parametrize(("status", "kind"), [(404, NotFound), (409, Conflict), (500, Refused)])
async def test_an_error_has_the_status_and_the_message_of_the_engine(
    engine: Engine, client: DockerClient, status: int, kind: type[EngineError]
) -> None:
    engine.answer = lambda _: web.json_response({"message": "no, as I said"}, status=status)
    with pytest.raises(EngineError) as raised:
        await client.inspect("c")
    assert type(raised.value) is kind
    assert (raised.value.status, raised.value.message) == (status, "no, as I said")


async def test_an_error_of_a_proxy_contains_the_text_of_its_page(
    engine: Engine, client: DockerClient
) -> None:
    engine.answer = lambda _: web.Response(text="a gateway's page\n", status=502)
    with pytest.raises(Refused, match="a gateway's page"):
        await client.inspect("c")


async def test_a_stopped_engine_is_unreachable_until_it_starts(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "docker.sock")
    client = DockerClient(engine.url)
    await client.connect()  # a stopped engine does not refuse the backend
    with pytest.raises(Unreachable):
        await client.containers(["a=b"])
    runner = await engine.start()
    assert await client.containers(["a=b"]) == []
    await client.close()
    await runner.cleanup()


async def test_an_engine_has_at_most_four_changes_at_once_and_can_be_read_meanwhile(tmp_path: Path) -> None:
    engine = BusyEngine(tmp_path / "docker.sock")
    runner = await engine.start()
    client = DockerClient(engine.url, call_seconds=60)
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as starts:
        for number in range(20):
            starts.create_task(client.start(f"c{number}"))
        await engine.has_four.wait()
        for _ in range(4):
            assert await client.containers(["a=b"]) == []
        engine.goes_on.set()
    assert engine.most_changes == 4
    assert len([each for each in engine.requests if each.method == "POST"]) == 20
    await client.close()
    await runner.cleanup()


async def test_a_silent_stream_is_unreachable(engine: Engine) -> None:
    client = DockerClient(engine.url, call_seconds=1)
    engine.pieces, engine.stays_open = [], True
    with pytest.raises(Unreachable, match="in time"):
        await logs(client, silence=0.2)
    await client.close()


async def test_an_old_engine_is_refused_and_its_connections_are_closed(
    engine: Engine, tmp_path: Path
) -> None:
    engine.api_version = "1.40"
    spool = FolderSpool(tmp_path / "logs", most_log=1 << 20)
    with pytest.raises(BackendRefused, match=r"1\.40.*at least 1\.41"):
        await DockerBackend(spool, DockerSettings(base_url=engine.url)).connect()
    gc.collect()  # an open session is a warning, which fails the test


async def test_calls_use_the_version_of_the_engine_s_api(engine: Engine, client: DockerClient) -> None:
    await client.has_image("registry.example:5000/team/image@sha256:0")
    assert engine.requests[0].raw_path == "/v1.43/images/registry.example:5000/team/image@sha256:0/json"


async def test_frames_of_a_log_may_arrive_in_any_pieces(engine: Engine, client: DockerClient) -> None:
    whole = frame(LINE) + frame(b"") + frame(LINE * 1000) + frame(LINE)
    engine.pieces = [whole[:3], whole[3:9], whole[9:100], whole[100:]]
    assert b"".join(await logs(client)) == LINE * 1002


async def test_a_broken_stream_raises_an_error(engine: Engine, client: DockerClient) -> None:
    engine.pieces, engine.breaks = [frame(LINE)], True
    with pytest.raises(Unreachable):
        await logs(client)
    with pytest.raises(Unreachable):
        [event async for event in client.events(since=0)]


async def test_calls_work_while_150_logs_are_followed_and_closed_logs_close_their_connections(
    engine: Engine, client: DockerClient
) -> None:
    engine.pieces, engine.stays_open = [frame(LINE)], True
    followed = [client.logs("c", follow=True, since=None, tail_lines=None, silence=None) for _ in range(150)]
    assert [await anext(each) for each in followed] == [LINE] * 150
    assert await client.containers(["a=b"]) == []
    for each in followed:
        await each.aclose()
    async with asyncio.timeout(PATIENCE):
        await engine.all_closed.wait()


@pytest.mark.parametrize("image", ["registry.example/image", "registry.example/image:1"])
async def test_a_pull_uses_the_login_of_docker_login(
    engine: Engine, client: DockerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, image: str
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    login = base64.b64encode(b"me:secret").decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {"registry.example": {"auth": login}}}))
    engine.pieces = [b'{"status":"Pulling"}\r\n{"sta', b'tus":"Done"}\r\n']
    await client.pull(image)
    request = engine.requests[0]
    assert dict(request.query) == {
        "fromImage": "registry.example/image",
        "tag": "1" if ":1" in image else "latest",
    }
    sent = json.loads(base64.urlsafe_b64decode(request.headers["X-Registry-Auth"]))
    assert (sent["username"], sent["password"]) == ("me", "secret")


async def test_a_failed_pull_has_the_reason_of_the_engine(
    engine: Engine, client: DockerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    engine.pieces = [b'{"status":"Pulling"}\r\n', b'{"error":"manifest unknown"}\r\n']
    with pytest.raises(Refused, match="manifest unknown"):
        await client.pull("image:1")
    assert "X-Registry-Auth" not in engine.requests[0].headers


async def test_the_client_uses_tls_with_the_certificates_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    (tmp_path / "ca.pem").write_bytes(certificate.read_bytes())
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate))
    tls.verify_mode = ssl.CERT_REQUIRED  # the engine requires the client's certificate
    tls.load_cert_chain(certificate, key)
    engine = Engine(tmp_path / "unused")
    runner = await engine.start(tls)
    monkeypatch.setenv("DOCKER_HOST", engine.url)
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    for verify in ("1", ""):
        monkeypatch.setenv("DOCKER_TLS_VERIFY", verify)
        client = DockerClient(None)
        await client.connect()
        assert await client.containers(["a=b"]) == []
        await client.close()
    monkeypatch.setenv("DOCKER_CERT_PATH", "")
    monkeypatch.delenv("DOCKER_TLS_VERIFY")
    client = DockerClient(None)
    with pytest.raises(EngineError):
        await client.containers(["a=b"])
    await client.close()
    await runner.cleanup()

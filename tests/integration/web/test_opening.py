"""The address where the dashboard listens, and services without a dashboard."""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.certificates import LOCAL, Authority
from tests.support.patience import PATIENCE
from tests.support.web_site import Visit
from training_service import web_opening
from training_service.auth.live import Live
from training_service.auth.pem_files import PemFile
from training_service.auth.tls import ServerTls, read_tls
from training_service.settings import Settings
from training_service.settings.service import ServerSettings
from training_service.settings.web import WebSettings
from training_service.web.server import WebServer, listen
from training_service.web_opening import CannotOpenDashboard, is_wanted


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, True),
        ({"web": {"enabled": False}}, False),
        ({"server": {"address": "0.0.0.0:1", "insecure": True}}, False),
        ({"server": {"address": "0.0.0.0:1", "insecure": True}, "web": {"enabled": True}}, True),
    ],
)
def test_it_is_on_by_default_on_loopback_only(values: dict[str, Any], wanted: bool) -> None:
    assert is_wanted(Settings(**values)) is wanted


def test_without_its_libraries_the_service_starts_unless_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web_opening, "find_spec", lambda _: None)
    assert not is_wanted(Settings())
    with pytest.raises(CannotOpenDashboard, match=r"web.enabled: .*install training-service\[web\]"):
        is_wanted(Settings(web=WebSettings(enabled=True)))


async def test_another_program_at_its_default_port_does_not_matter(visit: Visit) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        made = web_opening._listen(Settings(server=ServerSettings(address=f"127.0.0.1:{port - 1}")), port - 1)
        with made:
            assert made.getsockname()[1] != port


async def test_answers_are_not_held_back_until_the_browser_confirms_earlier_ones() -> None:
    set_for: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        set_for.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listening = listen("127.0.0.1", 0)
    async with await asyncio.start_server(accept, sock=listening):
        _, writer = await asyncio.open_connection(*listening.getsockname())
        assert await set_for
        writer.close()


async def test_a_configured_port_that_is_taken_is_an_error(visit: Visit) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(CannotOpenDashboard, match=rf"web.address: cannot listen at {address}"):
            await visit(web={"address": address})


async def test_with_tls_it_speaks_https_and_a_new_certificate_counts_at_once(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue(*LOCAL).write(tmp_path, "server")
    paths = [files.certificate, files.key]

    def read() -> ServerTls:
        return read_tls(*(PemFile("server.tls", path) for path in paths))

    tls = Live("server.tls", paths, read, check_seconds=0)
    server = WebServer(_hello, listen("127.0.0.1", 0), tls, grace=1)
    await server.start()
    try:
        first = await _serial(server.port, authority)
        await asyncio.to_thread(authority.issue(*LOCAL).write, tmp_path, "server")
        assert await _serial(server.port, authority) != first
    finally:
        await server.stop()


async def _serial(port: int, authority: Authority) -> object:
    context = ssl.create_default_context(cafile=str(authority.file))
    url = f"https://localhost:{port}/"
    async with (
        httpx.AsyncClient(verify=context, timeout=PATIENCE) as client,
        client.stream("GET", url) as answer,
    ):
        connection = answer.extensions["network_stream"].get_extra_info("ssl_object")
        return connection.getpeercert()["serialNumber"]


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})

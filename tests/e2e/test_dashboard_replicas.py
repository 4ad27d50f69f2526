"""A page in a browser continues at another replica when the replica that it reads from goes away."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import expect

from tests.support.access import RedisOpener
from tests.support.api_service import serve
from tests.support.browsers import chromium, new_page
from tests.support.redis_server import server_or_skip
from tests.support.web_site import Site, Visit, visit

__all__ = ["serve", "visit"]


class Balancer:
    """One address for several replicas: passes each connection on to the first one that answers."""

    def __init__(self, sites: list[Site]) -> None:
        self._places = [urlsplit(site.dashboard.url) for site in sites]
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        self.is_open = asyncio.Event()
        """Set while connections are passed on."""
        self.is_open.set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.is_open.wait()
        for place in self._places:
            try:
                there = await asyncio.open_connection(place.hostname, place.port)
            except OSError:
                continue
            await asyncio.gather(_pass_on(reader, there[1]), _pass_on(there[0], writer))
            break
        writer.close()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Balancer"]:
        """Listen during the block."""
        async with await asyncio.start_server(self.accept, "127.0.0.1", 0) as server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self
            server.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@pytest.fixture
def opener(tmp_path: Path) -> Iterator[RedisOpener]:
    """Opens the same store in Redis for each replica."""
    server = server_or_skip(tmp_path / "redis")
    server.start()
    yield RedisOpener(server)
    server.end()


async def test_a_list_goes_on_at_another_replica(visit: Visit, opener: RedisOpener) -> None:
    first, second = await visit(opener), await visit(opener)
    await second.service.train(name="first")
    async with Balancer([first, second]).serving() as balancer, chromium() as browser:
        page = await new_page(browser, balancer.url)
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        await page.goto("/jobs")
        await second.service.train(name="second")
        await expect(page.locator("#name-2")).to_have_text("second")
        balancer.is_open.clear()
        await first.dashboard.stop()
        await expect(page.locator(".lost")).to_contain_text("connection to the service is lost")
        balancer.is_open.set()
        await second.service.train(name="third")
        await expect(page.locator("#name-3")).to_have_text("third")
        await expect(page.locator(".lost")).to_have_count(0)
        assert problems == []

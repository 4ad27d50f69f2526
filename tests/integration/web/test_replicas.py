"""Two replicas on one store: a session is good at both, and each shows what happens at the other."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.access import Entry, RedisOpener
from tests.support.redis_server import server_or_skip
from tests.support.web_site import Visit


@pytest.fixture
def opener(tmp_path: Path) -> Iterator[RedisOpener]:
    """Opens the same store in Redis for each replica."""
    server = server_or_skip(tmp_path / "redis")
    server.start()
    yield RedisOpener(server)
    server.end()


async def test_a_session_is_good_at_every_replica(visit: Visit, opener: RedisOpener) -> None:
    one = await visit(opener, auth={"loopback": "token"})
    other = await visit(opener, auth={"loopback": "token"})
    entry = Entry(one.service)
    await entry.project("vision", alice="viewer")
    browser = one.browser()
    await browser.log_in((await entry.token("alice")).text)
    await other.service.access.callers.refresh()  # a stream checks for changes of roles twice a second
    second = other.browser()
    second.client.cookies = browser.client.cookies
    assert "alice" in await second.page("/jobs?project=vision")
    assert await second.proof() == await browser.proof()


async def test_a_list_at_one_replica_shows_jobs_of_the_other(visit: Visit, opener: RedisOpener) -> None:
    one, other = await visit(opener), await visit(opener)
    async with other.browser().events("/jobs/live") as events:
        await anext(events)
        await anext(events)
        job_id = await one.service.train(name="first")
        name, text = await anext(events)
        assert (name, re.findall(r'id="name-(\d+)"', text)) == ("rows", [str(job_id)])

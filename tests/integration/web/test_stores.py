"""Each view on each store."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from job_tracker.domain.group import Phase, RankStatus
from job_tracker.store.sqlite import SqliteStore
from tests.support.access import RedisOpener
from tests.support.jobs import NOON, spec
from tests.support.redis_server import server_or_skip
from tests.support.web_site import STREAMS, Visit, hostile_job, views


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Opens a store of each kind."""
    if request.param == "sqlite":
        yield SqliteStore
        return
    server = server_or_skip(tmp_path / "redis")
    server.start()
    yield RedisOpener(server)
    server.end()


async def test_each_view_shows_jobs_of_the_store(visit: Visit, store: Any) -> None:
    site = await visit(store)
    browser = site.browser()
    ended = await hostile_job(site)
    waiting = await site.service.train(name="second")
    job = await site.service.store.submit(spec(name="third"), NOON, None, 9)
    job = await site.service.store.update(job.admitted(NOON))
    job = await site.service.store.update(job.observed((RankStatus(0, Phase.RUNNING),)).running(NOON))
    for job_id in (ended, waiting, job.id):
        for path in views(job_id):
            if not path.endswith(STREAMS):
                answer = await browser.get(path)
                expected = 404 if path.endswith("/model") else 303 if path == "/" else 200
                assert answer.status_code == expected, (path, answer.text)
    assert "second" in await browser.page("/jobs?name=second")
    assert "second" in await browser.page("/queue")
    assert '<span class="state running">' in await browser.page(f"/jobs/{job.id}")
    assert (await browser.page(f"/series.csv?job={ended}")).count("\n") == 2
    assert (await browser.page(f"/series.csv?job={waiting}")).count("\n") == 1
    for path, expected_event in {f"/jobs/{job.id}/live": "job", "/queue/live": "queue"}.items():
        async with browser.events(path) as events:
            assert (await anext(events))[0] == expected_event
    assert (await browser.post(f"/jobs/{waiting}/cancel", {})).status_code == 303
    assert "cancelled" in await browser.page(f"/jobs/{waiting}")

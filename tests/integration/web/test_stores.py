"""Each view on each store."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from job_tracker.store.sqlite import SqliteStore
from tests.support.access import RedisOpener
from tests.support.redis_server import server_or_skip
from tests.support.web_site import STREAMS, Visit, hostile_job, views
from training_service._generated import training_service_pb2 as pb


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
    site = await visit(store, tracked=True)
    browser = site.browser()
    ended = await hostile_job(site)
    running = await site.service.train({"RUN_SECONDS": "forever", "PRINT": "hello"}, name="second")
    await site.service.seen(running, pb.running)
    for job_id in (ended, running):
        for path in views(job_id):
            if not path.endswith(STREAMS):
                answer = await browser.get(path)
                expected = {404} if path.endswith("/model") else {303} if path == "/" else {200}
                assert answer.status_code in expected, (path, answer.text)
    assert "second" in await browser.page("/jobs?name=second")
    assert "hello" in await browser.page(f"/jobs/{running}/logs")
    assert "loss" not in await browser.page(f"/series.csv?job={running}")
    for path in (f"/jobs/{running}/live", "/jobs/live", "/queue/live", f"/jobs/{running}/logs/follow"):
        async with browser.events(path) as events:
            names = {(await anext(events))[0], (await anext(events))[0]} if path == "/jobs/live" else {
                (await anext(events))[0]
            }
            assert names <= {"job", "rows", "queue", "lines", "problem"}, path
    answer = await browser.post(f"/jobs/{running}/cancel", {})
    assert answer.status_code == 303
    await site.service.seen(running, pb.cancelled)

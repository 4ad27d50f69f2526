"""Sweeps, running jobs and the history of queues, the users of machines, and the service as its operators see
it.
"""

import asyncio
import json

import pytest

from job_tracker.common.clock import utc_now
from job_tracker.scheduling.use_history import OF_PROJECTS, OF_QUEUES
from job_tracker.tracking.replicas import REPLICA
from tests.support.access import Entry
from tests.support.patience import PATIENCE
from tests.support.web_site import Browser, Site, Visit
from training_service._generated import training_service_pb2 as pb


@pytest.fixture
async def tracked(visit: Visit) -> Site:
    """A dashboard of a service that runs jobs."""
    return await visit(tracked=True)


async def test_a_sweep_shows_the_parameters_that_differ(site: Site, browser: Browser) -> None:
    for rate in ("1", "2"):
        await site.service.train({"LR": rate}, name=f"sweep-{rate}")
    await site.service.train({"LR": "9"}, name="other")
    text = await browser.page("/sweep?name=sweep-")
    assert 'class="mono">LR</th>' in text
    assert "EPOCHS</th>" not in text
    assert text.count("<tr data-job=") == 2
    assert "No jobs match" in await browser.page("/sweep?name=none")


@pytest.mark.parametrize("query", ["state=x", "tag=%3Cb%3E", "since=x"])
async def test_a_bad_filter_of_a_sweep_is_named(browser: Browser, query: str) -> None:
    answer = await browser.get(f"/sweep?{query}")
    assert answer.status_code == 400
    assert "<b>" not in answer.text


async def test_running_jobs_are_lanes_and_machines_name_their_people(tracked: Site) -> None:
    browser = tracked.browser()
    running = await tracked.service.train({"RUN_SECONDS": "forever"}, name="holder")
    await tracked.service.seen(running, pb.running)
    async with asyncio.timeout(PATIENCE):
        # The page may show the queue of a moment ago.
        while 'class="running"' not in (text := await browser.page("/queue")):
            await asyncio.sleep(0.1)
    assert f"{running} holder</a>" in text
    machines = await browser.page("/machines")
    assert f"{running} holder</a>" in machines
    assert '<a href="/jobs?by=operator">operator</a>' in machines


async def test_the_history_of_queues_and_projects_is_drawn(site: Site, browser: Browser) -> None:
    now = utc_now().timestamp()
    slot = int(now % 86_400 // 300)
    note = json.dumps([[slot, 750, 500, 3]])
    of_project = json.dumps([[slot, 125, -1, 0]])
    day = int(now // 86_400)
    await site.service.store.keep_scheduling_notes(
        {(OF_QUEUES, f"{day} default"): note, (OF_PROJECTS, f"{day} default"): of_project}
    )
    for over in ("hour", "day", "week"):
        text = await browser.page(f"/queue?over={over}")
        assert "at most 75 % · quota 50 % · up to 3 waiting" in text
        assert "at most 12 %<" in text
    assert "allowed: hour, day, week" in await browser.page("/queue?over=year", 400)


async def test_only_members_see_what_a_project_held(closed: Site) -> None:
    now = utc_now().timestamp()
    note = json.dumps([[int(now % 86_400 // 300), 333, -1, 0]])
    day = int(now // 86_400)
    await closed.service.store.keep_scheduling_notes({(OF_PROJECTS, f"{day} vision"): note})
    entry = Entry(closed.service)
    await entry.project("vision", alice="viewer")
    await entry.project("speech", bob="viewer")
    for name, sees in (("alice", True), ("bob", False)):
        browser = closed.browser()
        await browser.log_in((await entry.token(name)).text)
        assert ("at most 33 %" in await browser.page("/queue")) == sees
    await browser.page("/queue?project=vision", 403)


async def test_operators_see_replicas_and_stores_and_others_do_not(closed: Site) -> None:
    replica = {"name": "host/<b>", "version": "1", "started_at": 1.0, "seen_at": 2.0, "is_leading": True}
    await closed.service.store.keep_scheduling_notes({(REPLICA, "host/<b>"): json.dumps(replica)})
    entry, operator, other = Entry(closed.service), closed.browser(), closed.browser()
    await entry.project("vision", alice="admin")
    await operator.log_in(entry.operator[0][1].removeprefix("Bearer "))
    text = await operator.page("/operator/service")
    assert "host/&lt;b&gt;" in text
    assert "missing" in text
    assert "No replica is known to lead" in text
    assert "answers in" in text
    await other.log_in((await entry.token("alice")).text)
    assert "only an operator may see" in await other.page("/operator/service", 403)


async def test_the_time_line_of_a_failed_job_has_its_failure(tracked: Site) -> None:
    job = await tracked.service.train({"EXIT_CODE": "3"})
    await tracked.service.seen(job, pb.failure)
    text = await tracked.browser().page(f"/jobs/{job}")
    assert 'class="mark failure"' in text
    assert "What to do:" in text

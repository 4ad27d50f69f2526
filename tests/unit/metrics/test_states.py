"""A scrape shows the current state, and never waits long for the store or the event loop."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from job_tracker.backends.fake import FakeBackend
from job_tracker.common.clock import utc_now
from job_tracker.domain.errors import StoreUnavailable
from job_tracker.domain.job import JobState
from job_tracker.logs.archive import LogArchive
from job_tracker.logs.collector import LogCollector
from job_tracker.reports import ReportBuffer
from job_tracker.scheduling.model import Reason
from job_tracker.store.queue import Tally
from job_tracker.store.sqlite import SqliteStore
from job_tracker.tracking.tracker import Tracker, TrackerOptions
from tests.support.jobs import spec
from tests.support.leadership import elected
from tests.support.patience import PATIENCE
from training_service.metrics import Metrics, states
from training_service.metrics.states import MOST_MACHINES, MOST_PROJECTS

Samples = dict[tuple[str, str], float]


class MoodyStore(SqliteStore):
    """A store that may fail or hang."""

    refuses = False
    hangs = False

    async def tallies(self) -> Mapping[JobState, Tally]:
        if self.hangs:
            await asyncio.Event().wait()
        if self.refuses:
            raise StoreUnavailable("the job store is away")
        return await super().tallies()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MoodyStore]:
    made = await MoodyStore.open(tmp_path / "jobs.db")
    assert isinstance(made, MoodyStore)
    yield made
    await made.close()


@pytest.fixture
async def metrics(store: MoodyStore, monkeypatch: pytest.MonkeyPatch) -> Metrics:
    monkeypatch.setattr(states, "_STORE_SECONDS", PATIENCE)
    made = Metrics()
    made.observe_store(store, capacity=lambda: 8)
    return made


async def scraped(metrics: Metrics) -> Samples:
    """The samples of a scrape by name, and by the value of their label if they have one."""
    return samples_in(await asyncio.to_thread(generate_latest, metrics.registry))


def samples_in(text: bytes) -> Samples:
    return {
        (sample.name.removeprefix("training_service_"), next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


async def test_jobs_and_instances_are_counted_by_the_store(store: MoodyStore, metrics: Metrics) -> None:
    now = datetime.now(UTC)
    first = await store.submit(spec(instances=3), now, None, 10)
    await store.submit(spec(instances=2), now - timedelta(hours=5), None, 10)
    await store.update(first.admitted(now))
    seen = await scraped(metrics)
    assert {state: seen["jobs", state] for state in JobState} == {
        **dict.fromkeys(JobState, 0),
        JobState.QUEUED: 1,
        JobState.LAUNCHING: 1,
    }
    assert seen["instances_in_use", ""] == 3
    assert seen["instances_capacity", ""] == 8
    assert seen["queue_head_age_seconds", ""] == pytest.approx(5 * 3600, abs=PATIENCE)
    assert seen["store_up", ""] == 1


async def test_jobs_are_counted_by_configured_project(
    store: MoodyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "_STORE_SECONDS", PATIENCE)
    for project in ("vision", "speech", "removed", "vision"):
        await store.submit(spec(project=project), datetime.now(UTC), None, 10)
    many = [f"p{number:03}" for number in range(200)]
    made = Metrics()
    made.observe_store(store, capacity=lambda: 8, projects=lambda: ["vision", "speech", "default"])
    bounded = Metrics()
    bounded.observe_store(store, capacity=lambda: 8, projects=lambda: [*many, "vision"])
    assert await queued_by_project(made) == {"vision": 2, "speech": 1, "default": 0, "other projects": 1}
    found = await queued_by_project(bounded)
    assert (len(found), found["other projects"]) == (MOST_PROJECTS + 1, 4)


async def queued_by_project(metrics: Metrics) -> dict[str, float]:
    text = (await asyncio.to_thread(generate_latest, metrics.registry)).decode()
    return {
        sample.labels["project"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "training_service_project_jobs" and sample.labels["state"] == JobState.QUEUED
    }


async def test_an_empty_queue_has_no_age(metrics: Metrics) -> None:
    assert (await scraped(metrics))["queue_head_age_seconds", ""] == 0


@pytest.mark.parametrize("mood", ["refuses", "hangs"])
async def test_an_unavailable_store_neither_delays_a_scrape_nor_shows_old_numbers(
    store: MoodyStore, metrics: Metrics, mood: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setattr(store, mood, True)
    with monkeypatch.context() as impatient:
        impatient.setattr(states, "_STORE_SECONDS", 1.0)
        several = await asyncio.gather(*(scraped(metrics) for _ in range(3)))
    for seen in several:
        assert seen["store_up", ""] == 0
        assert not [
            name for name, _ in seen if name in ("jobs", "instances_in_use", "queue_head_age_seconds")
        ]
        assert seen["instances_capacity", ""] == 8
    setattr(store, mood, False)
    assert (await scraped(metrics))["store_up", ""] == 1


async def test_a_busy_event_loop_is_shown_and_does_not_delay_a_scrape(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "_STORE_SECONDS", 1.0)
    measuring = asyncio.create_task(metrics.observe_loop())
    await asyncio.sleep(0)
    with ThreadPoolExecutor(1) as pool:
        text = pool.submit(generate_latest, metrics.registry).result()  # blocks the event loop
    time.sleep(0.5)  # which is more of the same
    assert samples_in(text)["store_up", ""] == 0
    while (seen := await scraped(metrics))["event_loop_lag_seconds_count", ""] == 0:
        await asyncio.sleep(0.01)
    assert seen["event_loop_lag_seconds_sum", ""] > 0.5
    measuring.cancel()
    await asyncio.gather(measuring, return_exceptions=True)


async def test_the_tracker_is_shown_only_while_it_runs(store: MoodyStore, metrics: Metrics) -> None:
    options, reports = TrackerOptions(capacity=8), ReportBuffer(store, utc_now)
    backend, archive = FakeBackend(), LogArchive("memory://logs")
    logs = LogCollector(store, backend.world, archive)
    tracker = Tracker(store, backend, logs, options, await elected(store), reports)
    names = ("queue_depth", "oldest_seconds", "longest_work_seconds", "retries_total")
    with metrics.observing(tracker):
        seen = await scraped(metrics)
        assert {name: seen[f"tracker_{name}", ""] for name in names} == dict.fromkeys(names, 0)
        looked_at = seen["tracker_last_look_timestamp_seconds", ""]
        assert looked_at == pytest.approx(time.time(), abs=PATIENCE)
        assert {reason: seen["waiting_jobs", reason] for reason in Reason} == dict.fromkeys(Reason, 0)
        tracker._admitting.reasons = {Reason.QUOTA: 3}
        assert (await scraped(metrics))["waiting_jobs", "quota"] == 3
        tracker.progress.slow_machines = {f"node-{n}": 2 + n for n in range(MOST_MACHINES + 1)}
        shown = {label: n for (name, label), n in (await scraped(metrics)).items() if "machine" in name}
        assert len(shown) == MOST_MACHINES
        assert (max(shown.values()), min(shown.values())) == (2 + MOST_MACHINES, 3)
    assert not [name for name, _ in await scraped(metrics) if name.startswith("tracker_")]


async def test_the_time_of_a_full_look_is_shown(store: MoodyStore) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    options, reports = TrackerOptions(capacity=8), ReportBuffer(store, utc_now)
    backend, archive = FakeBackend(), LogArchive("memory://logs")
    logs = LogCollector(store, backend.world, archive)
    tracker = Tracker(store, backend, logs, options, await elected(store), reports, clock=lambda: at)
    at += timedelta(minutes=1)
    assert tracker.looked_at < at
    running = asyncio.create_task(tracker.run())
    async with asyncio.timeout(PATIENCE):
        while tracker.looked_at != at:
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_age_of_the_watch_is_shown_once_there_is_one(metrics: Metrics) -> None:
    age: float | None = None
    metrics.observe_watch(lambda: age)
    assert ("kubernetes_watch_age_seconds", "") not in await scraped(metrics)
    age = 12.5
    assert (await scraped(metrics))["kubernetes_watch_age_seconds", ""] == 12.5

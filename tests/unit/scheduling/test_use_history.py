"""Queues' use over the last week: recorded by leaders, one after the other, and read by every replica."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from job_tracker.domain.allocation import Allocation
from job_tracker.domain.job import new_job
from job_tracker.scheduling import use_history
from job_tracker.scheduling.board import Board
from job_tracker.scheduling.model import Flavor, Limit, Queue
from job_tracker.scheduling.notes import NoteKeeper
from job_tracker.scheduling.use_history import (
    OF_PROJECTS,
    OF_QUEUES,
    SLOT_SECONDS,
    Point,
    Use,
    UseHistory,
    UseReader,
)
from job_tracker.store.sqlite import SqliteStore
from tests.support.jobs import NOON, spec

NOW = NOON.timestamp()
DAY = 86_400.0
QUEUES = {
    "research": Queue(name="research"),
    "vision": Queue(
        name="vision",
        parent="research",
        limits={"default": {"instances": Limit(nominal=4)}},
        project="default",
    ),
    "of-vision": Queue(
        name="of-vision",
        parent="vision",
        limits={"default": {"instances": Limit(nominal=1)}},
        project="default",
    ),
}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    yield store
    await store.close()


class Leader:
    """A term of a leader, and its clock."""

    def __init__(self, store: SqliteStore, now: float = NOW) -> None:
        pool: Any = ((Flavor(name="default", capacity={"instances": 8}),), QUEUES)
        self.now = now
        self.board = Board(lambda: pool, half_life=100.0)
        self.keeper = NoteKeeper(store, None, lambda: self.now)

    def run(self, job_id: int, instances: int) -> None:
        wanted = new_job(job_id, spec(instances=instances, queue="vision"), NOON)
        self.board.read(wanted.admitted(NOON, Allocation()), self.now)

    def wait(self, job_id: int) -> None:
        self.board.read(new_job(job_id, spec(queue="vision"), NOON), self.now)

    async def write(self, now: float) -> None:
        self.now = now
        await self.keeper.write(self.board, with_usage=True)


async def test_a_slot_has_the_most_that_a_queue_and_its_parents_held(store: SqliteStore) -> None:
    leader = Leader(store)
    leader.run(1, 2)
    leader.wait(2)
    await leader.write(NOW)
    leader.run(3, 4)
    await leader.write(NOW + 30)
    leader.board.remove(1, NOW)
    leader.board.remove(3, NOW)
    await leader.write(NOW + 60)
    found = await UseReader(store).read(OF_QUEUES, ["vision", "research", "other"], NOW + 60, DAY)
    assert found["vision"] == [Point(at=NOW, held=0.75, quota=0.5, waiting=1)]
    assert found["research"] == [Point(at=NOW, held=0.75, quota=None, waiting=1)]
    assert found["other"] == []


async def test_a_slot_has_the_most_that_a_project_held_and_the_quota_of_its_own_queues(
    store: SqliteStore,
) -> None:
    leader = Leader(store)
    leader.run(1, 2)
    leader.wait(2)
    await leader.write(NOW)
    leader.board.remove(1, NOW)
    other = new_job(3, spec(instances=8, queue="research", project="speech"), NOON)
    leader.board.read(other.admitted(NOON, Allocation()), NOW)
    await leader.write(NOW + 30)
    names = ["default", "speech", "other"]
    found = await UseReader(store).read(OF_PROJECTS, names, NOW + 60, DAY)
    assert found["default"] == [Point(at=NOW, held=0.25, quota=0.5, waiting=1)]
    assert found["speech"] == [Point(at=NOW, held=1.0, quota=None, waiting=0)]
    assert found["other"] == []


async def test_a_later_leader_continues(store: SqliteStore) -> None:
    first = Leader(store)
    first.run(1, 6)
    await first.write(NOW)
    second = Leader(store, NOW + 10)
    await second.keeper.restore(second.board)
    second.run(4, 1)
    await second.write(NOW + 10)
    await second.write(NOW + SLOT_SECONDS)
    points = (await UseReader(store).read(OF_QUEUES, ["vision"], NOW + SLOT_SECONDS, DAY))["vision"]
    assert [(point.at - NOW, point.held) for point in points] == [(0, 0.75), (SLOT_SECONDS, 0.125)]


async def test_an_idle_queue_writes_nothing(store: SqliteStore) -> None:
    leader = Leader(store)
    await leader.write(NOW)
    await leader.write(NOW + SLOT_SECONDS)
    assert await store.scheduling_notes(OF_QUEUES) == {}


async def test_a_week_is_kept_and_only_the_wanted_time_is_read(store: SqliteStore) -> None:
    leader = Leader(store)
    leader.run(1, 8)
    for day in range(use_history.DAYS + 2):
        await leader.write(NOW + day * DAY)
    now = NOW + (use_history.DAYS + 1) * DAY
    assert len(await store.scheduling_notes(OF_QUEUES)) == 2 * use_history.DAYS
    week = await UseReader(store).read(OF_QUEUES, ["vision"], now, 7 * DAY)
    assert len(week["vision"]) == 7
    hour = await UseReader(store).read(OF_QUEUES, ["vision"], now, timedelta(hours=1).total_seconds())
    assert len(hour["vision"]) == 1


async def test_a_week_is_read_in_half_hours_and_its_past_days_once(store: SqliteStore) -> None:
    leader = Leader(store)
    leader.run(1, 2)
    await leader.write(NOW)
    leader.run(2, 4)
    await leader.write(NOW + SLOT_SECONDS)
    reader, now = UseReader(store), NOW + DAY
    points = (await reader.read(OF_QUEUES, ["vision"], now, 7 * DAY))["vision"]
    assert points == [Point(at=NOW, held=0.75, quota=0.5, waiting=0, seconds=1800.0)]
    await store.keep_scheduling_notes({(OF_QUEUES, f"{int(NOW // DAY)} vision"): None})
    assert (await reader.read(OF_QUEUES, ["vision"], now, 7 * DAY))["vision"] == points
    assert (await UseReader(store).read(OF_QUEUES, ["vision"], now, 7 * DAY))["vision"] == []


async def test_what_is_remembered_is_bounded(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use_history, "_REMEMBERED", 3)
    reader = UseReader(store)
    await reader.read(OF_QUEUES, [f"queue-{number}" for number in range(9)], NOW, 7 * DAY)
    assert len(reader._past) == 3


async def test_many_queues_and_foreign_notes_do_no_harm(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(use_history, "MOST_NAMES", 1)
    day = int(NOW // DAY)
    await store.keep_scheduling_notes({(OF_QUEUES, f"{day} vision"): "{", (OF_QUEUES, "x"): "[[1]]"})
    leader = Leader(store)
    await leader.keeper.restore(leader.board)
    leader.run(1, 1)
    await leader.write(NOW)
    points = (await UseReader(store).read(OF_QUEUES, ["vision"], NOW, DAY))["vision"]
    assert [point.held for point in points] == [0.125]


def test_notes_that_are_read_again_on_the_next_day_do_not_bring_back_the_day_before() -> None:
    history = UseHistory(OF_QUEUES)
    history.observe(Use(held={"vision": 0.5}, waiting={}, guaranteed={}), NOW)
    before = dict(history.texts())
    assert before
    history.restore(before, NOW)
    assert history.texts() == before
    history.restore(before, NOW + DAY)
    assert history.texts() == {}

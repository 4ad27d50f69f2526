"""The notes of scheduling: their content for a later leader, and when they are written."""

import math
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from job_tracker.domain.errors import StoreUnavailable
from job_tracker.domain.job import Preemption, PreemptionReason, new_job
from job_tracker.scheduling.board import Board
from job_tracker.scheduling.model import Flavor, Plan, Promise, Queue, Reason, Reserve, Usage
from job_tracker.scheduling.notes import CLAIMS, USAGE, WAITING, NoteKeeper, notes_of, reservation_of
from job_tracker.store.sqlite import SqliteStore
from tests.support.jobs import NOON, spec

NOW = NOON.timestamp()
RESERVED = Reserve(7, Promise(NOW + 60, "default"), (Reason.CAPACITY,))
HELD_UP = Reserve(8, Promise(math.inf, "", overtaken=2), (Reason.UNKNOWN_LENGTH,))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    yield store
    await store.close()


@pytest.fixture
def board() -> Board:
    queues = {name: Queue(name=name) for name in ("default", "busy")}
    pool: Any = (Flavor(name="default", capacity={"instances": 8}),), queues
    return Board(lambda: pool, half_life=100.0)


async def test_a_later_leader_reads_promises_and_usage(store: SqliteStore, board: Board) -> None:
    keeper = NoteKeeper(store, None)
    keeper.decided(Plan(reserved=(RESERVED, HELD_UP)), board)
    board.usage["default"] = Usage(NOW, {"default": {"instances": 12.5}})
    await keeper.write(board, with_usage=True)
    later = Board(lambda: ((), {}), half_life=100.0)
    await NoteKeeper(store, None).restore(later)
    assert later.promises == {7: RESERVED.promise, 8: HELD_UP.promise}
    assert later.usage == board.usage
    assert await reservation_of(store, 8) == HELD_UP


async def test_only_what_has_changed_is_written(store: SqliteStore, board: Board) -> None:
    keeper = NoteKeeper(store, None)
    keeper.decided(Plan(reserved=(RESERVED,)), board)
    assert keeper.has_changed()
    await keeper.write(board, with_usage=False)
    assert not keeper.has_changed()
    keeper.decided(Plan(reserved=(RESERVED,)), board)
    assert not keeper.has_changed()
    keeper.decided(Plan(), board)
    assert keeper.has_changed()
    await keeper.write(board, with_usage=False)
    assert await store.scheduling_notes(WAITING) == {}


def stopped_for(board: Board, by: int) -> None:
    """Let job 1 run, and let it be stopped for a waiting job."""
    victim = new_job(1, spec(), NOON).admitted(NOON)
    board.read(new_job(by, spec(), NOON), NOW)
    board.read(victim.preempted(Preemption(by_job=by, why=PreemptionReason.PRIORITY), NOON), NOW)


async def test_a_claim_is_noted_until_the_waiting_job_starts(store: SqliteStore, board: Board) -> None:
    keeper = NoteKeeper(store, None)
    stopped_for(board, by=7)
    await keeper.write(board, with_usage=False)
    board.remove(1, NOW)
    await keeper.write(board, with_usage=False)
    later = Board(lambda: ((), {}), half_life=100.0)
    later.read(new_job(7, spec(), NOON), NOW)
    next_keeper = NoteKeeper(store, None)
    await next_keeper.restore_claims(later)
    assert later.preemption.claims(later.waiting) == [7]
    later.read(new_job(7, spec(), NOON).admitted(NOON), NOW)
    await next_keeper.write(later, with_usage=False)
    assert await store.scheduling_notes(CLAIMS) == {}


async def test_a_claim_is_written_at_once_unless_it_is_written_already(store: SqliteStore) -> None:
    keeper = NoteKeeper(store, None)
    await keeper.keep_claim(1, (7, 0))
    await keeper.keep_claim(2, (7, 1))
    assert (await notes_of(store, NOW)).claims == {1: (7, 0), 2: (7, 1)}
    await store.keep_scheduling_notes({(CLAIMS, "1"): None})
    await keeper.keep_claim(1, (7, 0))
    await keeper.keep_claim(2, (8, 0))
    assert (await notes_of(store, NOW)).claims == {2: (8, 0)}


@pytest.mark.parametrize(
    ("key", "text"), [("", "7 0"), ("x", "7 0"), ("1", "7"), ("1", "7 x"), ("1", "7 0 0"), ("1", "-7 0")]
)
async def test_a_claim_of_another_version_is_left_out(
    store: SqliteStore, board: Board, key: str, text: str
) -> None:
    await store.keep_scheduling_notes({(CLAIMS, key): text})
    keeper = NoteKeeper(store, None)
    board.read(new_job(7, spec(), NOON), NOW)
    await keeper.restore_claims(board)
    assert board.preemption.claims(board.waiting) == []
    await keeper.write(board, with_usage=False)
    assert await store.scheduling_notes(CLAIMS) == {}


@pytest.mark.parametrize(
    "text", ["", "x", "{}", "[]", '{"job_id": "x"}', '{"at": 1}', "null", '{"at": "NaN", "amounts": 3}']
)
async def test_a_note_that_cannot_be_read_is_left_out_and_replaced(
    store: SqliteStore, board: Board, text: str
) -> None:
    await store.keep_scheduling_notes({(USAGE, "default"): text or "-", (WAITING, "7"): text or "-"})
    keeper = NoteKeeper(store, None)
    await keeper.restore(board)
    assert (board.usage, board.promises) == ({}, {})
    assert await reservation_of(store, 7) is None
    await keeper.write(board, with_usage=True)
    keeper.decided(Plan(), board)
    await keeper.write(board, with_usage=True)
    assert await store.scheduling_notes(USAGE) == await store.scheduling_notes(WAITING) == {}


async def test_the_usage_of_a_queue_is_forgotten_once_it_has_decayed(
    store: SqliteStore, board: Board
) -> None:
    keeper = NoteKeeper(store, None)
    board.usage |= {name: Usage(NOW, {"default": {"instances": 1000.0}}) for name in ("idle", "busy")}
    board.read(new_job(1, spec(queue="busy"), NOON).admitted(NOON), NOW)
    await keeper.write(board, with_usage=True)
    before = await store.scheduling_notes(USAGE)
    board.advance(NOW + 50)
    await keeper.write(board, with_usage=True)
    after = await store.scheduling_notes(USAGE)
    assert after["idle"] == before["idle"], "that of an idle queue only decays"
    assert after["busy"] != before["busy"]
    later = NOW + timedelta(hours=1).total_seconds()
    board.advance(later)
    await keeper.write(board, with_usage=True)
    assert set(await store.scheduling_notes(USAGE)) == set(board.usage) == {"busy"}


async def test_notes_that_were_written_without_an_answer_are_removed_once_they_are_over(
    store: SqliteStore, board: Board
) -> None:
    class Silent:
        fails = True

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def keep_scheduling_notes(self, *arguments: Any, **more: Any) -> None:
            await store.keep_scheduling_notes(*arguments, **more)
            if self.fails:
                raise StoreUnavailable("no answer")

    silent = Silent()
    keeper = NoteKeeper(silent, None)
    keeper.decided(Plan(reserved=(RESERVED,)), board)
    with pytest.raises(StoreUnavailable):
        await keeper.write(board, with_usage=False)
    assert keeper.has_changed()
    keeper.decided(Plan(), board)
    silent.fails = False
    await keeper.write(board, with_usage=False)
    assert await store.scheduling_notes(WAITING) == {}

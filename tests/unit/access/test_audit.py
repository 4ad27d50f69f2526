"""Denials and reads on their way to the store: merged, bounded, and kept if the store does not answer."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from job_tracker.access import audit
from job_tracker.access.audit import MERGED_SECONDS, MOST_KEPT, OF_ALL, OF_ONE, OF_STRANGERS, AuditTrail
from job_tracker.domain.audit import AUTHENTICATE, MORE, AuditEvent, Outcome
from job_tracker.domain.errors import StoreUnavailable
from job_tracker.store.audit import AuditStore
from tests.support.jobs import NOON

EVENT = AuditEvent(
    at=NOON, action="logs", outcome=Outcome.READ, caller="ada", project="vision", target="job 1"
)
STRANGER = AuditEvent(at=NOON, action=AUTHENTICATE, outcome=Outcome.DENIED, address="ipv4:192.0.2.1")


class Memory:
    """A store that keeps events in memory. It answers while `answers` is set."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []
        self.problem: Exception | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked = asyncio.Event()

    async def add_events(self, events: Sequence[AuditEvent]) -> None:
        self.asked.set()
        await self.answers.wait()
        if self.problem is not None:
            raise self.problem
        self.events += events

    def counts(self) -> Counter[str]:
        """The number of events by target."""
        found: Counter[str] = Counter()
        for event in self.events:
            found[event.target] += event.count
        return found


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def memory() -> Memory:
    return Memory()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def trail(memory: Memory, clock: Clock) -> AuditTrail:
    return AuditTrail(cast(AuditStore, memory), clock)


async def test_the_first_event_is_written_at_once_and_equal_ones_together(
    trail: AuditTrail, memory: Memory, clock: Clock
) -> None:
    for second in range(3):
        trail.note(replace(EVENT, at=NOON + timedelta(seconds=second), request_id=f"r{second}"))
    await trail.flush()
    assert memory.events == [replace(EVENT, count=3, request_id="r0")]
    for _ in range(5):
        trail.note(EVENT)
        await trail.flush()
    assert len(memory.events) == 1
    clock.now += MERGED_SECONDS
    await trail.flush()
    assert [event.count for event in memory.events] == [3, 5]
    clock.now += MERGED_SECONDS
    await trail.flush()
    trail.note(EVENT)
    await trail.flush()
    assert [event.count for event in memory.events] == [3, 5, 1]


@pytest.mark.parametrize(
    "changes",
    [
        {"target": "job 2"},
        {"action": "fetch"},
        {"outcome": Outcome.DENIED},
        {"caller": "bob"},
        {"credential": "aaaaaaaa"},
        {"address": "ipv4:192.0.2.7"},
    ],
)
async def test_other_events_are_not_merged(
    trail: AuditTrail, memory: Memory, changes: dict[str, Any]
) -> None:
    trail.note(EVENT)
    trail.note(replace(EVENT, **changes))
    await trail.flush()
    assert memory.events == [EVENT, replace(EVENT, **changes)]


async def test_beyond_its_rate_a_caller_has_one_event_for_the_rest(trail: AuditTrail, memory: Memory) -> None:
    for number in range(int(OF_ONE.burst) + 20):
        trail.note(replace(EVENT, target=f"job {number}"))
    trail.note(replace(EVENT, caller="bob"))
    await trail.flush()
    assert len(memory.events) == OF_ONE.burst + 2
    [rest] = [event for event in memory.events if event.action == MORE]
    assert (rest.caller, rest.outcome, rest.count, rest.target) == ("ada", Outcome.READ, 20, "")
    assert memory.events[-1].caller == "bob"


async def test_denials_beyond_the_rate_are_counted_apart_from_reads(
    trail: AuditTrail, memory: Memory
) -> None:
    for number in range(300):
        outcome = Outcome.READ if number % 2 else Outcome.DENIED
        trail.note(replace(EVENT, target=f"job {number}", outcome=outcome))
    await trail.flush()
    rest = {event.outcome: event.count for event in memory.events if event.action == MORE}
    assert rest == {Outcome.READ: 100, Outcome.DENIED: 100}


async def test_strangers_cannot_fill_the_store(trail: AuditTrail, memory: Memory, clock: Clock) -> None:
    seconds, each = 600, 20
    for second in range(seconds):
        for number in range(each):
            trail.note(replace(STRANGER, address=f"ipv4:10.0.{second}.{number}"))
        await trail.flush()
        clock.now += 1
    await trail.close()
    most = OF_STRANGERS.burst + seconds * OF_STRANGERS.per_second + seconds / MERGED_SECONDS + 2
    assert len(memory.events) <= most
    assert sum(event.count for event in memory.events) == seconds * each


async def test_a_rate_recovers(trail: AuditTrail, memory: Memory, clock: Clock) -> None:
    for number in range(200):
        trail.note(replace(EVENT, target=f"job {number}"))
    await trail.flush()
    clock.now += 2 * OF_ONE.burst / OF_ONE.per_second
    await trail.flush()
    memory.events.clear()
    for number in range(int(OF_ONE.burst)):
        trail.note(replace(EVENT, target=f"later {number}"))
    await trail.flush()
    assert {event.action for event in memory.events} == {"logs"}


async def test_memory_is_bounded_however_many_callers_there_are(
    trail: AuditTrail, memory: Memory, clock: Clock
) -> None:
    memory.problem = StoreUnavailable("away")
    number = 10 * MOST_KEPT
    for index in range(number):
        trail.note(replace(EVENT, caller=f"caller-{index}"))
    with pytest.raises(StoreUnavailable):
        await trail.flush()
    memory.problem = None
    await trail.flush()
    assert OF_ALL.burst < len(memory.events) <= 2 * MOST_KEPT + 2
    assert sum(event.count for event in memory.events) == number


async def test_a_store_that_does_not_answer_delays_nothing_and_loses_nothing(
    trail: AuditTrail, memory: Memory
) -> None:
    memory.answers.clear()
    trail.note(EVENT)
    writing = asyncio.create_task(trail.flush())
    await memory.asked.wait()
    trail.note(EVENT)
    trail.note(replace(EVENT, target="job 2"))
    memory.problem = StoreUnavailable("away")
    memory.answers.set()
    with pytest.raises(StoreUnavailable):
        await writing
    memory.problem = None
    await trail.flush()
    assert memory.counts() == {"job 1": 2, "job 2": 1}


async def test_an_event_during_a_write_is_written_later(
    trail: AuditTrail, memory: Memory, clock: Clock
) -> None:
    memory.answers.clear()
    trail.note(EVENT)
    writing = asyncio.create_task(trail.flush())
    await memory.asked.wait()
    trail.note(EVENT)
    memory.answers.set()
    await writing
    assert memory.counts() == {"job 1": 1}
    await trail.close()
    assert memory.counts() == {"job 1": 2}


async def test_the_end_does_not_wait_for_a_store_that_does_not_answer(
    trail: AuditTrail, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_CLOSING_SECONDS", 0.01)
    memory.answers.clear()
    trail.note(EVENT)
    await trail.close()
    memory.answers.set()
    memory.problem = StoreUnavailable("away")
    await trail.close()
    assert memory.events == []


async def test_it_writes_by_itself_and_again_after_an_error(
    trail: AuditTrail, memory: Memory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit, "FLUSH_SECONDS", 0.01)
    memory.problem = StoreUnavailable("away")
    trail.note(EVENT)
    running = asyncio.create_task(trail.run())
    await memory.asked.wait()
    memory.asked.clear()
    memory.problem = None
    await memory.asked.wait()
    running.cancel()
    await asyncio.wait([running])
    assert memory.events == [EVENT]
    assert [record.getMessage() for record in caplog.records] == [
        "events of denials and reads cannot be written to the audit: away"
    ]

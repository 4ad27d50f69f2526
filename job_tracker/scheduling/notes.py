"""The notes of scheduling, which the leader writes to the store.

A later leader continues with these notes, and every replica uses them to answer questions.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from pydantic import TypeAdapter

from job_tracker.scheduling.board import Board
from job_tracker.scheduling.model import Plan, Reserve, Usage
from job_tracker.scheduling.preemption_view import Claim
from job_tracker.scheduling.use_history import (
    OF_PROJECTS,
    OF_QUEUES,
    UseHistory,
    use_of_projects,
    use_of_queues,
)
from job_tracker.scheduling.waits import WaitRule, WaitTimes
from job_tracker.store.lease import Term
from job_tracker.store.scheduling import SchedulingStore

T = TypeVar("T")

USAGE: Final = "usage"
"""The kind of the notes about the past usage of queues. Their keys are the queues."""
WAITING: Final = "waiting"
"""The kind of the notes about reservations and reasons of waiting jobs. Their keys are the jobs."""
WAITS: Final = "waits"
"""The kind of the note about learned waits, which has a single key."""
CLAIMS: Final = "claims"
"""The kind of the notes about claims: for which waiting job a job was stopped. Their keys are the stopped
jobs."""
_ALL: Final = "all"
_UNSURE: Final = ""
"""Stands for a text while it is unknown which text the store has."""

_RESERVED = TypeAdapter(Reserve)
_USAGE = TypeAdapter(Usage)


class NoteKeeper:
    """Collects the notes of each pass, and writes the notes that have changed.

    Usage and learned waits change all the time, so they are written less often.
    """

    def __init__(
        self, store: SchedulingStore, term: Term | None, clock: Callable[[], float] = time.time
    ) -> None:
        """`term` is the leader's term, with which the notes are written."""
        self._store = store
        self._term = term
        self._kept: dict[tuple[str, str], str] = {}
        """The written texts, by kind and key."""
        self._written: Mapping[int, Reserve] = {}
        self._decided: Mapping[int, Reserve] = {}
        self._writing = asyncio.Lock()
        self._clock = clock
        self._queues, self._projects = UseHistory(OF_QUEUES), UseHistory(OF_PROJECTS)
        self._histories = (self._queues, self._projects)

    async def restore(self, board: Board) -> None:
        """Set the board's usage, promises and learned waits, and the history of use, from the notes.

        This must happen before the board reads a job.
        """
        for history in self._histories:
            history.restore(await self._store.scheduling_notes(history.kind), self._clock())
        if (text := await self._store.scheduling_note(WAITS, _ALL)) is not None:
            self._kept[WAITS, _ALL] = text
            board.experience.waits.restore(text)
        for queue, text in (await self._store.scheduling_notes(USAGE)).items():
            self._kept[USAGE, queue] = text
            if (usage := _read(_USAGE, text)) is not None:
                board.usage.setdefault(queue, usage)
        written: dict[int, Reserve] = {}
        for key, text in (await self._store.scheduling_notes(WAITING)).items():
            self._kept[WAITING, key] = text
            if (reserved := _read(_RESERVED, text)) is not None:
                board.promises.setdefault(reserved.job_id, reserved.promise)
                written[reserved.job_id] = reserved
        self._written = self._decided = written

    async def restore_claims(self, board: Board) -> None:
        """Add the noted claims to the board. This must happen after the board has read the jobs.

        If a job is stopped for a waiting job, the claim is noted before the stopped job leaves. So no claim
        is missed, even if the stopped job leaves while jobs are read.
        """
        texts = await self._store.scheduling_notes(CLAIMS)
        self._kept |= {(CLAIMS, key): text for key, text in texts.items()}
        board.preemption.note(_claims_in(texts))

    async def keep_claim(self, job_id: int, claim: Claim) -> None:
        """Write for which waiting job the job `job_id` was stopped, if this is not written yet."""
        place, text = (CLAIMS, str(job_id)), _text_of_claim(claim)
        async with self._writing:
            if self._kept.get(place) != text:
                self._kept[place] = _UNSURE
                await self._store.keep_scheduling_notes({place: text}, term=self._term)
                self._kept[place] = text

    def decided(self, plan: Plan, board: Board) -> None:
        """Keep the reservations of a plan as the board's promises, in place of earlier ones."""
        board.promises.clear()
        board.promises.update({each.job_id: each.promise for each in plan.reserved})
        self._decided = {each.job_id: each for each in plan.reserved}

    def has_changed(self) -> bool:
        """Return whether the kept reservations differ from those that were written last."""
        return self._decided != self._written

    async def write(self, board: Board, *, with_usage: bool) -> None:
        """Write the changed notes in one transaction.

        Notes about usage, learned waits and the history of use are written only if `with_usage` is true.
        """
        async with self._writing:
            await self._write(board, with_usage=with_usage)

    async def _write(self, board: Board, *, with_usage: bool) -> None:
        decided = self._decided
        wanted = {(WAITING, str(job_id)): _text_of(_RESERVED, each) for job_id, each in decided.items()}
        claims = board.preemption.claims_to_note(board.waiting)
        wanted |= {(CLAIMS, str(job_id)): _text_of_claim(claim) for job_id, claim in claims.items()}
        if with_usage:
            wanted |= {(USAGE, queue): _text_of(_USAGE, usage) for queue, usage in board.used().items()}
            wanted[WAITS, _ALL] = board.experience.waits.text()
            self._queues.observe(use_of_queues(board), self._clock())
            self._projects.observe(use_of_projects(board), self._clock())
            for history in self._histories:
                wanted |= {(history.kind, key): text for key, text in history.texts().items()}
        changed: dict[tuple[str, str], str | None] = {
            place: text for place, text in wanted.items() if self._kept.get(place) != text
        }
        replaced = {WAITING, CLAIMS, *([USAGE] if with_usage else [])}  # learned waits are never removed
        changed |= {place: None for place in self._kept if place[0] in replaced and place not in wanted}
        for history in self._histories if with_usage else ():
            changed |= {(history.kind, key): None for key in history.outdated()}
        if not changed:
            self._written = decided
            return
        # Even if the store does not answer, it may have written the notes. Therefore, the next write must
        # replace or remove them.
        self._kept |= dict.fromkeys(changed, _UNSURE)
        await self._store.keep_scheduling_notes(changed, term=self._term)
        for place, text in changed.items():
            if text is None:
                self._kept.pop(place, None)
            else:
                self._kept[place] = text
        for history in self._histories:
            history.forget(
                key for (kind, key), text in changed.items() if kind == history.kind and text is None
            )
        self._written = decided


async def reservation_of(store: SchedulingStore, job_id: int) -> Reserve | None:
    """Return the reservation of a waiting job, from its note; None if it has none."""
    text = await store.scheduling_note(WAITING, str(job_id))
    return _read(_RESERVED, text) if text is not None else None


@dataclass(frozen=True, slots=True)
class Notes:
    """The notes of a leader, for other replicas."""

    usage: Mapping[str, Usage]
    reserved: Mapping[int, Reserve]
    rule: WaitRule
    claims: Mapping[int, Claim]
    """The claims of waiting jobs, by the job that was stopped."""


async def notes_of(store: SchedulingStore, now: float) -> Notes:
    """Return the notes, without those that another version wrote and that this version cannot read."""
    usage, waiting, waits, claims = await asyncio.gather(
        usage_of_queues(store),
        store.scheduling_notes(WAITING),
        store.scheduling_note(WAITS, _ALL),
        store.scheduling_notes(CLAIMS),
    )
    learned = WaitTimes()
    learned.restore(waits or "")
    reserved = (_read(_RESERVED, text) for text in waiting.values())
    return Notes(
        usage,
        {each.job_id: each for each in reserved if each is not None},
        learned.rule(now),
        _claims_in(claims),
    )


async def usage_of_queues(store: SchedulingStore) -> dict[str, Usage]:
    """Return the past usage of queues, as the leader last wrote it."""
    notes = await store.scheduling_notes(USAGE)
    read = {queue: _read(_USAGE, text) for queue, text in notes.items()}
    return {queue: usage for queue, usage in read.items() if usage is not None}


def _claims_in(texts: Mapping[str, str]) -> dict[int, Claim]:
    """Return the noted claims, without those that another version wrote and this one cannot read."""
    found: dict[int, Claim] = {}
    for key, text in texts.items():
        by_job, _, attempt = text.partition(" ")
        if key.isdecimal() and by_job.isdecimal() and attempt.isdecimal():
            found[int(key)] = (int(by_job), int(attempt))
    return found


def _text_of_claim(claim: Claim) -> str:
    return f"{claim[0]} {claim[1]}"


def _text_of(adapter: TypeAdapter[T], value: T) -> str:
    # `dump_json` is not used: it cannot write infinity, which stands for a start that cannot be promised.
    return json.dumps(adapter.dump_python(value, mode="json", exclude_defaults=True))


def _read(adapter: TypeAdapter[T], text: str) -> T | None:
    """Return the value of a note. None: another version has written the note."""
    try:
        return adapter.validate_python(json.loads(text))
    except ValueError:
        return None

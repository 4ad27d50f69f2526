"""The notes of scheduling in Redis."""

from collections.abc import Mapping
from itertools import chain

from job_tracker.store.lease import Term
from job_tracker.store.redis import scripts
from job_tracker.store.redis.access import Run
from job_tracker.store.redis.audit import RunFenced
from job_tracker.store.scheduling import Changed

_KEPT_AT_ONCE = 1000


class RedisScheduling:
    """The part of a store that keeps notes of scheduling; see SchedulingStore."""

    def __init__(self, run: Run, run_fenced: RunFenced) -> None:
        self.__run = run
        self.__run_fenced = run_fenced

    async def scheduling_notes(self, kind: str) -> Mapping[str, str]:
        _, pairs = await self.__run(scripts.NOTES, kind)
        return {key.decode(): note.decode() for key, note in zip(pairs[::2], pairs[1::2], strict=True)}

    async def scheduling_note(self, kind: str, key: str) -> str | None:
        _, note = await self.__run(scripts.NOTE, kind, key)
        return note.decode() if note is not None else None

    async def keep_scheduling_notes(self, changed: Changed, *, term: Term | None = None) -> None:
        notes = [(*place, content or "") for place, content in changed.items()]
        for start in range(0, len(notes), _KEPT_AT_ONCE):
            some = notes[start : start + _KEPT_AT_ONCE]
            await self.__run_fenced(scripts.NOTES_KEEP, term, *chain.from_iterable(some))

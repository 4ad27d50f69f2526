"""Watches the progress of running attempts. It finds stalled attempts and slow processes."""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from job_tracker.common.clock import AwakeClock, utc_now
from job_tracker.common.printable import quoted, without_secrets
from job_tracker.domain.diagnosis import Diagnosis
from job_tracker.domain.group import GroupRef
from job_tracker.domain.job import Job
from job_tracker.domain.pace import RankPace
from job_tracker.domain.tags import HELD
from job_tracker.reports import ReportBuffer
from job_tracker.reports.ranks import Attempt, RankBoard, Watched
from job_tracker.tracking.inspecting import Inspect, processes_of
from job_tracker.tracking.machines import slow_machines
from job_tracker.tracking.stalls import (
    NO_LONGER_SLOW,
    SLOW,
    explained,
    is_proven,
    is_stall,
    main_thread,
    slowness,
    standstill_of,
)

log = logging.getLogger(__name__)

_PERIOD_SECONDS = 0.5
_ASKED_PERIOD_SECONDS = 0.1  # while stacks are awaited
_SHORTEST_PERIOD_SECONDS = 0.01
_SHORTEST_SHOW_SECONDS = 2.0
_MOST_STACKS = 8  # of slow processes; they are stored with the job
_LONGEST_STACK = 2000
_SHOWN_A_SECOND = 20  # processes of one attempt: the larger a group, the less often its progress is stored


class ProgressWatch:
    """Watches attempts for the tracker. Only the tracker stops groups.

    All observations are dropped at the end of the tracker's term. The next tracker learns from new reports,
    so that no attempt is stopped because of old observations.
    """

    def __init__(
        self,
        reports: ReportBuffer,
        on_stall: Callable[[int], None],
        now: Callable[[], datetime] = utc_now,
        inspect: Inspect | None = None,
    ) -> None:
        """Call `on_stall` with the id of a job whose attempt has stalled.

        `inspect` inspects ranks that do not answer.
        """
        self._reports = reports
        self._board: RankBoard = reports.ranks
        self._on_stall = on_stall
        self._now = now
        self._inspect = inspect
        self._inspections: dict[Attempt, asyncio.Task[None]] = {}
        self._again = asyncio.Event()
        self._groups: dict[Attempt, GroupRef] = {}
        self._held: set[Attempt] = set()
        self._stalls: dict[Attempt, Diagnosis] = {}
        self._shown: dict[Attempt, float] = {}
        self.slow_processes = 0
        """The number of processes that were slow at the last check."""
        self.slow_machines: dict[str, int] = {}
        """The machines that were slow for several jobs at the last check, with the number of jobs."""

    async def run(self) -> None:
        """Watch until cancelled."""
        self._board.open()
        try:
            while True:
                self.look()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._until_next_look()):
                        await self._again.wait()
                self._again.clear()
        finally:
            self._board.close()
            for inspection in self._inspections.values():
                inspection.cancel()

    def _until_next_look(self) -> float:
        """Return the seconds until the next check.

        The next check comes no later than the first time at which an attempt may count as stalled. While
        stacks are awaited, checks are more frequent.
        """
        now, period = self._board.clock(), _PERIOD_SECONDS
        for attempt, watched in self._board.watched():
            if watched.asked is not None and attempt not in self._stalls:
                period = min(period, _ASKED_PERIOD_SECONDS)
            elif watched.stalls_at > now:
                period = min(period, watched.stalls_at - now)
        return max(period, _SHORTEST_PERIOD_SECONDS)

    def look(self) -> None:
        """Check all attempts once."""
        clock = self._board.clock
        if isinstance(clock, AwakeClock):
            clock.tick()
        now, slow = clock(), 0
        for attempt, watched in self._board.watched():
            try:
                self._look_at(attempt, watched, now)
            except Exception:  # The watch of the other jobs must continue.
                log.exception("the progress of job %d cannot be watched", attempt[0])
            slow += sum(signs.slow_since is not None for signs in watched.signs.values())
        self.slow_processes = slow
        self._note_slow_machines()

    def follow(self, job: Job, machines: Sequence[str] = ()) -> None:
        """Watch the attempt of a running job. `machines` are the machines of the ranks, as far as known."""
        attempt = (job.id, job.attempt)
        self._groups[attempt] = job.group
        (self._held.add if HELD in job.tags else self._held.discard)(attempt)
        self._board.follow(job, machines)

    def stall_of(self, group: GroupRef) -> Diagnosis | None:
        """Return why the group has stalled. None: it has not stalled."""
        return self._stalls.get((group.job_id, group.attempt))

    def forgive(self, group: GroupRef) -> None:
        """Count the group's time without progress from now on, as if the group had just made progress."""
        attempt = (group.job_id, group.attempt)
        self._go_on(attempt)
        for known, watched in self._board.watched():
            if known == attempt:
                watched.moved, watched.asked = self._board.clock(), None

    def forget(self, group: GroupRef) -> None:
        """Forget a group that has ended."""
        attempt = (group.job_id, group.attempt)
        self._board.drop(attempt)
        self._go_on(attempt)
        self._held.discard(attempt)
        self._groups.pop(attempt, None)
        self._shown.pop(attempt, None)

    def _go_on(self, attempt: Attempt) -> None:
        """Forget all findings about a stall of the attempt."""
        self._stalls.pop(attempt, None)
        if inspection := self._inspections.pop(attempt, None):
            inspection.cancel()

    def _look_at(self, attempt: Attempt, watched: Watched, now: float) -> None:
        factors = slowness(watched)
        self._note_slow(attempt, watched, factors)
        if watched.signs and now - self._shown.get(attempt, -_SHORTEST_SHOW_SECONDS) >= max(
            _SHORTEST_SHOW_SECONDS, len(watched.signs) / _SHOWN_A_SECOND
        ):
            self._shown[attempt] = now
            self._reports.show_ranks(attempt, paces_of(watched))
        moved = max([watched.moved, *(each.moved for each in watched.signs.values())])
        watched.restless = now - moved > watched.quiet_after
        stall, asked = standstill_of(watched, now), watched.asked
        watched.stalls_at = math.inf if stall is None else now + stall.limit - stall.seconds
        if stall is None or not is_stall(stall, watched, now, self._board.pause_of(watched)):
            watched.asked = None
            self._go_on(attempt)
        elif asked is None or (stall.is_over and now - asked > stall.seconds - stall.patience):
            self._go_on(attempt)  # the processes are asked, perhaps again: earlier answers do not count
            for signs in watched.signs.values():
                signs.stacks, signs.collectives = "", ()
            watched.asked, watched.outside = now, {}
            watched.still_since = now - stall.seconds
            log.info(
                "job %d: attempt %d has made no progress for %.1f s, at most %.0f s are allowed; "
                "its processes are asked for their stacks",
                *(*attempt, stall.seconds, stall.limit),
            )
        elif attempt not in self._stalls and self._has_answers(watched, now):
            quiet = {process for process, signs in watched.signs.items() if signs.heard < asked}
            quiet |= watched.expected.keys() - watched.signs.keys()
            if not self._were_inspected(attempt, watched, quiet):
                return
            if not (stall.is_over or is_proven(watched)):
                return
            self._stalls[attempt] = explained(stall, watched, quiet)
            self._on_stall(attempt[0])

    def _were_inspected(self, attempt: Attempt, watched: Watched, quiet: set[int]) -> bool:
        """Begin to inspect the silent processes if necessary. Return False while the inspection runs.

        A job with the tag `held` may be under a debugger, so its processes are not inspected.
        """
        unseen = quiet | (watched.processes - watched.signs.keys())
        if not unseen or self._inspect is None or attempt in self._held:
            return True
        if attempt not in self._inspections:
            inspection = self._look_from_outside(attempt, watched, unseen, self._inspect)
            self._inspections[attempt] = asyncio.create_task(inspection)
        return self._inspections[attempt].done()

    async def _look_from_outside(
        self, attempt: Attempt, watched: Watched, processes: set[int], inspect: Inspect
    ) -> None:
        """Inspect the processes from outside, then check the attempt again."""
        each, group = watched.per_rank, self._groups[attempt]
        found = await inspect(group, {process // each for process in processes})
        watched.outside = {
            process: seen
            for rank, several in found.items()
            for process, seen in processes_of(rank, several, each, watched.size).items()
            if process in processes
        }
        self._again.set()

    def _has_answers(self, watched: Watched, now: float) -> bool:
        """Return whether all processes have sent their stacks, or have had enough time to send them.

        A process that had stopped reporting before it was asked will not answer, so only the other processes
        count.
        """
        assert watched.asked is not None
        pause = self._board.pause_of(watched)
        if now - watched.asked > 2 * pause + 2:
            return True
        answering = [signs for signs in watched.signs.values() if now - signs.heard <= 2 * pause + 1]
        return bool(answering) and all(signs.stacks for signs in answering)

    def _note_slow(self, attempt: Attempt, watched: Watched, factors: Mapping[int, float]) -> None:
        for process, signs in watched.signs.items():
            factor = factors.get(process, 0.0)
            signs.slowness = factor or signs.slowness  # without a new factor, the previous one stays
            if signs.slow_since is None and factor >= SLOW:
                signs.slow_since = self._now()
                log.warning(
                    "job %d: process %d works %.1f times as long on a step as the median one",
                    attempt[0],
                    process,
                    factor,
                )
            elif signs.slow_since is not None and process in factors and factor < NO_LONGER_SLOW:
                signs.slow_since, signs.slow_stacks = None, ""

    def _note_slow_machines(self) -> None:
        slow = slow_machines(watched for _, watched in self._board.watched())
        for machine in slow.keys() - self.slow_machines.keys():
            log.warning(
                "machine %s is slow for %d jobs: all of their processes on it are slow, and others are not",
                quoted(machine),
                slow[machine],
            )
        self.slow_machines = slow


def paces_of(watched: Watched) -> tuple[RankPace, ...]:
    """Return the progress of each process, as it is stored with the job."""
    slow = [process for process, signs in sorted(watched.signs.items()) if signs.slow_since is not None]
    stacks = {
        process: main_thread(without_secrets(watched.signs[process].slow_stacks))[-_LONGEST_STACK:]
        for process in slow[:_MOST_STACKS]
    }
    return tuple(
        RankPace(
            process=process,
            step=signs.last.step,
            activity=signs.last.activity,
            heard_at=signs.heard_at,
            step_seconds=signs.last.step_seconds,
            waiting_seconds=signs.last.waiting_seconds,
            slowness=signs.slowness if signs.slow_since else 0.0,
            slow_since=signs.slow_since,
            stack=stacks.get(process, ""),
        )
        for process, signs in sorted(watched.signs.items())
    )

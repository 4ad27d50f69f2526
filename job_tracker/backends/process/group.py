"""One live group of processes: its start, observation and stop."""

import asyncio
import logging
import shlex
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress

from job_tracker.backends.base import Observation, RankObservation
from job_tracker.backends.process import sweeping
from job_tracker.backends.process.diagnosis import records_lost
from job_tracker.backends.process.files import GroupFolder
from job_tracker.backends.process.rank import RankProcess
from job_tracker.domain.group import MASTER_RANK, Phase, RankStatus

log = logging.getLogger(__name__)

_STOP_MARGIN_SECONDS = 5.0


class ProcessGroup:
    """A live group. `on_change` is called whenever a rank ends."""

    def __init__(self, folder: GroupFolder, on_change: Callable[["ProcessGroup"], None]) -> None:
        self.folder = folder
        self.damage = folder.damage
        """The defect of the group's records that makes the whole group fail; empty if there is none."""
        self._on_change = on_change
        self._ranks = [self._rank(rank) for rank in range(len(folder.roles))]
        self._program = ""

    def _rank(self, rank: int) -> RankProcess:
        return RankProcess(rank, self.folder, lambda: self._on_change(self))

    async def reset_for_restart(self, restarts: Sequence[int]) -> None:
        """Prepare the ranks that must be restarted. After this call, they count as never started.

        `restarts` has the wanted number of restarts of each rank. If a rank with fewer restarts still runs,
        it has stalled, and is killed.
        """
        for rank, process in enumerate(self._ranks):
            if process.restarts < restarts[rank] and not process.is_pending:
                await process.kill()
                await process.ended.wait()
                await asyncio.to_thread(process.folder.forget_end)
                self._ranks[rank] = self._rank(rank)

    async def start(self) -> None:
        """Start every rank that was not started before. Raises the errors of RankProcess.start."""
        # Wait for all ranks even if one fails, so that no rank is started after the return.
        for result in await asyncio.gather(*(rank.start() for rank in self._ranks), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        await self._read_program()

    async def follow(self) -> None:
        """Follow the ranks that have been started already, whether by this service or by another one.

        Raises OSError for a temporary fault.
        """
        await asyncio.gather(*(rank.follow() for rank in self._ranks))
        await self._read_program()

    @property
    def is_running(self) -> bool:
        """Whether a supervisor of the group is known to be alive."""
        return any(rank.is_running for rank in self._ranks)

    def ended_of(self, rank: int) -> asyncio.Event | None:
        """Return the event that is set once the rank has ended after its last start; None if there is no such
        rank.
        """
        return self._ranks[rank].ended if rank < len(self._ranks) else None

    async def pid_of(self, rank: int) -> int | None:
        """Return the pid of the first process of a rank; None if the rank does not run."""
        return await self._ranks[rank].pid() if rank < len(self._ranks) else None

    def observe(self) -> Observation:
        """Return the current state of every rank."""
        ranks = [rank.observe() for rank in self._ranks]
        if self.damage:
            # Rank 0 gets the diagnosis of the group, which fails as a whole.
            failed = RankStatus(MASTER_RANK, Phase.FAILED, restarts=ranks[MASTER_RANK].status.restarts)
            ranks[MASTER_RANK] = RankObservation(failed, records_lost(self.damage))
        return Observation(tuple(ranks), self._program)

    async def stop(self, grace: float) -> None:
        """End every rank and wait until no process is left. Raises OSError for a temporary fault."""
        with suppress(OSError):  # the folder may be gone
            await asyncio.to_thread(self.folder.open_to_owner)
        with suppress(OSError):  # on a full disk the supervisors use their default grace period
            await asyncio.to_thread(self.folder.order_to_stop, grace)
        await asyncio.gather(*(rank.give_up_if_pending() for rank in self._ranks))
        for rank in self._ranks:
            rank.signal(signal.SIGTERM)
        if not await self._all_ended(within=grace + _STOP_MARGIN_SECONDS):
            await asyncio.gather(*(rank.kill() for rank in self._ranks))
            await self._all_ended(within=None)
        if self.damage or any(rank.left_no_record for rank in self._ranks):
            # A rank without a record may never have run, or may still be running after its record was
            # deleted.
            await asyncio.to_thread(sweeping.kill_all_below, self.folder.path)

    async def close(self) -> None:
        """Stop following the group, which continues to run."""
        for rank in self._ranks:
            await rank.close()

    async def _all_ended(self, within: float | None) -> bool:
        try:
            async with asyncio.timeout(within):
                for rank in self._ranks:
                    await rank.ended.wait()
        except TimeoutError:
            return False
        return True

    async def _read_program(self) -> None:
        if not self._program:
            arguments = await asyncio.to_thread(self.folder.rank(MASTER_RANK).arguments)
            self._program = shlex.join(arguments)

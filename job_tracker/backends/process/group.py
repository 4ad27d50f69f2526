"""One live group of processes: how it is started, observed and stopped."""

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
    """A live group. `on_change` is called whenever a rank has ended."""

    def __init__(self, folder: GroupFolder, on_change: Callable[["ProcessGroup"], None]) -> None:
        self.folder = folder
        self.damage = folder.damage
        """Why the group has failed, whatever its ranks do: its records are gone, or of no use."""
        self._on_change = on_change
        self._ranks = [self._rank(rank) for rank in range(len(folder.roles))]
        self._program = ""

    def _rank(self, rank: int) -> RankProcess:
        return RankProcess(rank, self.folder, lambda: self._on_change(self))

    async def forget_lost(self, restarts: Sequence[int]) -> None:
        """Have the ranks that are to be started anew as if they never were started, once they have ended."""
        for rank, process in enumerate(self._ranks):
            if process.restarts < restarts[rank] and not process.is_pending:
                await process.ended.wait()  # a supervisor that was killed may have left something to sweep
                await asyncio.to_thread(process.folder.forget_end)
                self._ranks[rank] = self._rank(rank)

    async def start(self) -> None:
        """Start every rank that was not started before. Raises LaunchFailed and OSError, as a rank does."""
        # All of them are waited for even if one fails, so that nothing is started after this has returned.
        for result in await asyncio.gather(*(rank.start() for rank in self._ranks), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        await self._read_program()

    async def follow(self) -> None:
        """Take up a group that was started before. Raises OSError for a fault that may pass."""
        await asyncio.gather(*(rank.follow() for rank in self._ranks))
        await self._read_program()

    @property
    def is_running(self) -> bool:
        """Whether any of its supervisors lives, as far as is known."""
        return any(rank.is_running for rank in self._ranks)

    def ended_of(self, rank: int) -> asyncio.Event | None:
        """Set when the rank, as it was started last, has ended; None if there is no such rank."""
        return self._ranks[rank].ended if rank < len(self._ranks) else None

    def observe(self) -> Observation:
        """What every rank is doing."""
        ranks = [rank.observe() for rank in self._ranks]
        if self.damage:
            # The group fails as a whole, which rank 0 stands for.
            failed = RankStatus(MASTER_RANK, Phase.FAILED, restarts=ranks[MASTER_RANK].status.restarts)
            ranks[MASTER_RANK] = RankObservation(failed, records_lost(self.damage))
        return Observation(tuple(ranks), self._program)

    async def stop(self, grace: float) -> None:
        """End every rank; return when nothing of the group is left. Raises OSError for a passing fault."""
        with suppress(OSError):  # it may be gone
            await asyncio.to_thread(self.folder.open_to_owner)
        with suppress(OSError):  # on a full disk the supervisors take a grace of their own
            await asyncio.to_thread(self.folder.order_to_stop, grace)
        await asyncio.gather(*(rank.give_up_if_pending() for rank in self._ranks))
        for rank in self._ranks:
            rank.signal(signal.SIGTERM)
        if not await self._all_ended(within=grace + _STOP_MARGIN_SECONDS):
            for rank in self._ranks:
                rank.signal(signal.SIGKILL)  # the kernel then kills the rank, and the sweep the rest
            await self._all_ended(within=None)
        if self.damage or any(rank.left_no_record for rank in self._ranks):
            # Perhaps it never ran; or what it has written of that is gone, and it runs still.
            await asyncio.to_thread(sweeping.kill_all_below, self.folder.path)

    async def close(self) -> None:
        """Let go; the group runs on."""
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

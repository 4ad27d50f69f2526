"""One live group of processes: its supervisors, how they are told to stop, and how their end is seen."""

import asyncio
import logging
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import psutil

from job_tracker.backends.base import Observation, RankObservation
from job_tracker.backends.process.diagnosis import diagnose, supervisor_lost
from job_tracker.backends.process.files import GroupFolder, RankFolder
from job_tracker.diagnosis import Category, Diagnosis
from job_tracker.errors import LaunchFailed
from job_tracker.logs import segments
from job_tracker.model import MASTER_RANK, Phase, RankStatus

log = logging.getLogger(__name__)

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_DIAGNOSIS_LINES = 20
_TAIL_BYTES = 4096
_START_SECONDS = 30.0
_STOP_MARGIN_SECONDS = 5.0
_RECORD_SECONDS = 5.0
_SWEEPS = 5


class RankProcess:
    """One rank, by its supervisor: started or found again, and then followed by a pidfd until it ends."""

    def __init__(self, rank: int, group: GroupFolder, on_end: Callable[[], None]) -> None:
        self.rank = rank
        self.folder: RankFolder = group.rank(rank)
        self.restarts = self.folder.restarts()
        self._errors = group.supervisors_log()
        self.ended = asyncio.Event()
        self._on_end = on_end
        self._pidfd: int | None = None
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the supervisor, unless there is one or was one, and wait until the command runs."""
        if not self.folder.was_started():
            ready, ready_in = os.pipe()
            try:
                _spawn_supervisor(self.folder.path, ready_in, self._errors)
                os.close(ready_in)
                ready_in = -1
                async with asyncio.timeout(_START_SECONDS):
                    await _closed(ready)
            except OSError as error:  # a TimeoutError is one as well
                raise LaunchFailed(_no_supervisor(self.rank, str(error) or "timed out")) from error
            finally:
                for fd in (ready, ready_in):
                    if fd >= 0:
                        os.close(fd)
        self.restarts = self.folder.restarts()
        await self.follow()
        if self.is_pending:
            raise LaunchFailed(_no_supervisor(self.rank, _tail(self._errors)))

    async def follow(self) -> None:
        """Be told of the supervisor's end; at once if it has ended. Nothing if there never was one."""
        if not self.is_pending:
            return
        # It is about to write its record, and no event tells of that.
        deadline = time.monotonic() + _RECORD_SECONDS
        while self.folder.supervisor_pid() is None and self.folder.is_supervised():
            if time.monotonic() > deadline:
                log.warning("%s: a process that nothing is written about is ended", self.folder.path)
                break
            await asyncio.sleep(0.01)
        if not self.is_pending or not self.folder.was_started():
            return  # somebody else here was first, or there is nothing to follow yet
        pid = self.folder.supervisor_pid()
        if pid is not None and self.folder.is_supervised():
            with suppress(ProcessLookupError):
                self._pidfd = os.pidfd_open(pid)
        # The lock is held no longer than that very process lives. Held still, the pidfd cannot be that
        # of a stranger who got the pid after it.
        if self._pidfd is not None and self.folder.is_supervised():
            asyncio.get_running_loop().add_reader(self._pidfd, self._supervisor_ended, self.folder.session())
        else:
            self._supervisor_ended(None)

    async def give_up_if_pending(self) -> None:
        """Count as ended if it was never started; the order to stop sees to it that it never is."""
        await self.follow()
        if self.is_pending:
            self.ended.set()

    @property
    def is_pending(self) -> bool:
        """Whether it was never started."""
        return self._pidfd is None and self._sweeping is None and not self.ended.is_set()

    def observe(self) -> RankObservation:
        """What the rank is doing."""
        if not self.ended.is_set():
            return RankObservation(self._status(Phase.PENDING if self.is_pending else Phase.RUNNING))
        tail = segments.tail(self.folder.log, _DIAGNOSIS_LINES)
        end = self.folder.exit_record()
        if end is None and not self.folder.was_started():
            return RankObservation(self._status(Phase.STOPPED))
        if end is None:
            tail += "\n" + _tail(self._errors)
            return RankObservation(self._status(Phase.FAILED), supervisor_lost(self.rank, tail.strip()))
        code = end.code if end.code >= 0 else 128 - end.code
        diagnosis = diagnose(self.rank, end, tail, self.folder.program())
        if end.stopped:
            return RankObservation(self._status(Phase.STOPPED, code), ended_at=end.at)
        phase = Phase.FAILED if diagnosis else Phase.SUCCEEDED
        return RankObservation(self._status(phase, code), diagnosis, end.at)

    def _status(self, phase: Phase, code: int | None = None) -> RankStatus:
        return RankStatus(self.rank, phase, code, restarts=self.restarts)

    def signal(self, number: int) -> None:
        """Signal the supervisor, if it lives."""
        if self._pidfd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    async def close(self) -> None:
        """Stop following. The rank runs on."""
        self._let_go()
        if self._sweeping is not None:
            await self._sweeping

    def _let_go(self) -> None:
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _supervisor_ended(self, session: int | None) -> None:
        """`session` is that of the rank's processes, if the supervisor has ended just now.

        Later its number may be another's.
        """
        self._let_go()
        pid = self.folder.supervisor_pid()
        if pid is not None:
            with suppress(ChildProcessError):  # not our child if an earlier service started it
                os.waitpid(pid, os.WNOHANG)
        if self.folder.exit_record() is None:
            self._sweeping = asyncio.create_task(self._sweep(session))
        else:
            self._end()

    async def _sweep(self, session: int | None) -> None:
        await asyncio.to_thread(_kill_all_of, str(self.folder.path / "work"), session)
        self._end()

    def _end(self) -> None:
        self.ended.set()
        self._on_end()


class ProcessGroup:
    """A live group. `on_change` is called whenever a rank has ended."""

    def __init__(self, folder: GroupFolder, on_change: Callable[["ProcessGroup"], None]) -> None:
        self.folder = folder
        self._on_change = on_change
        self._ranks = [self._rank(rank) for rank in range(len(folder.roles))]

    def _rank(self, rank: int) -> "RankProcess":
        return RankProcess(rank, self.folder, lambda: self._on_change(self))

    async def forget_lost(self, restarts: Sequence[int]) -> None:
        """Have the ranks that are to be started anew as if they never were started, once they have ended."""
        for rank, process in enumerate(self._ranks):
            if process.restarts < restarts[rank] and not process.is_pending:
                await process.ended.wait()  # a supervisor that was killed may have left something to sweep
                process.folder.forget_end()
                self._ranks[rank] = self._rank(rank)

    async def start(self) -> None:
        """Start every rank that was not started before. Raises LaunchFailed."""
        # All of them are waited for even if one fails, so that nothing is started after this has returned.
        for result in await asyncio.gather(*(rank.start() for rank in self._ranks), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def follow(self) -> None:
        """Take up a group that was started before."""
        await asyncio.gather(*(rank.follow() for rank in self._ranks))

    def observe(self) -> Observation:
        """What every rank is doing."""
        return Observation(tuple(rank.observe() for rank in self._ranks), self._program)

    @cached_property
    def _program(self) -> str:
        return shlex.join(self.folder.rank(MASTER_RANK).arguments())

    async def stop(self, grace: float) -> None:
        """End every rank; return when nothing of the group is left."""
        with suppress(OSError):  # on a full disk the supervisors take a grace of their own
            self.folder.order_to_stop(grace)
        await asyncio.gather(*(rank.give_up_if_pending() for rank in self._ranks))
        for rank in self._ranks:
            rank.signal(signal.SIGTERM)
        if not await self._all_ended(within=grace + _STOP_MARGIN_SECONDS):
            for rank in self._ranks:
                rank.signal(signal.SIGKILL)  # the kernel then kills the rank, and the sweep the rest
            await self._all_ended(within=None)

    async def close(self) -> None:
        """Let go; the group runs on."""
        for rank in self._ranks:
            await rank.close()

    def has_ended(self, rank: int) -> bool:
        """Whether the rank is gone."""
        return self._ranks[rank].ended.is_set()

    async def _all_ended(self, within: float | None) -> bool:
        try:
            async with asyncio.timeout(within):
                for rank in self._ranks:
                    await rank.ended.wait()
        except TimeoutError:
            return False
        return True


def _spawn_supervisor(folder: Path, ready: int, errors: Path) -> None:
    # posix_spawn neither copies the service's memory nor passes on any descriptor but these.
    log = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    try:
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", str(_SUPERVISOR), str(folder)],
            {},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, ready, 3),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsid=True,
        )
    finally:
        os.close(log)


async def _closed(fd: int) -> None:
    """Wait until the other end of the pipe is closed."""
    loop = asyncio.get_running_loop()
    closed = asyncio.Event()
    loop.add_reader(fd, closed.set)
    try:
        await closed.wait()
    finally:
        loop.remove_reader(fd)


def _kill_all_of(home: str, session: int | None) -> None:
    """Kill what a killed supervisor could not: the rank's session, and every process with its HOME.

    Only what has left both, and was in neither from its start, is not found.
    """
    for _ in range(_SWEEPS):
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                if os.getsid(process.pid) == session or process.environ().get("HOME") == home:
                    process.kill()
                    found.append(process)
        if not found:
            return
        psutil.wait_procs(found, timeout=5)  # and look again for what they started meanwhile


def _tail(path: Path) -> str:
    """The last lines of a file, or what of them fits; "" if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-_DIAGNOSIS_LINES:])


def _no_supervisor(rank: int, detail: str) -> Diagnosis:
    return Diagnosis(
        category=Category.LAUNCH_FAILED,
        summary=f"Rank {rank} could not be started.",
        resolution="See the detail; most often the disk is full, or too many processes run on the machine.",
        detail=detail,
        rank=rank,
    )

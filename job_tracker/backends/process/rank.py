"""One rank and its supervisor: the supervisor is started or found again, and then followed until it ends."""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from job_tracker.backends.base import RankObservation
from job_tracker.backends.process import sweeping
from job_tracker.backends.process.diagnosis import diagnose, supervisor_lost
from job_tracker.backends.process.files import GroupFolder, RankFolder
from job_tracker.backends.process.proc import stat_of
from job_tracker.backends.shared.log_ends import READ_BYTES, READ_LINES, evidence_of
from job_tracker.common import local_faults
from job_tracker.common.tasks import background
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import LaunchFailed
from job_tracker.domain.group import Phase, RankStatus
from job_tracker.files.untrusted import Place
from job_tracker.logs import segments

log = logging.getLogger(__name__)

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_LAST_WORDS = 500  # characters of the last output that are kept in memory for a rank without a failure
_ERROR_LINES = 20
_TAIL_BYTES = 4096
_START_SECONDS = 30.0
_RECORD_SECONDS = 5.0
_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Found:
    """The state of a rank's supervisor, as its files and /proc show it."""

    restarts: int
    was_started: bool
    pidfd: int | None = None
    """A pidfd of the supervisor; None if no supervisor is alive."""
    pid: int = 0
    session: int | None = None
    """The session of the rank's processes; None if it is not certain that the session belongs to them."""
    is_unwritten: bool = False
    """True if the supervisor is alive but has not written its record yet."""


class RankProcess:
    """A rank of a group. Its files are read in other threads; `observe` reads no files."""

    def __init__(self, rank: int, group: GroupFolder, on_end: Callable[[], None]) -> None:
        self.rank = rank
        self.folder: RankFolder = group.rank(rank)
        self.restarts = 0
        """The number of restarts of the rank; known once the rank is followed."""
        self.ended = asyncio.Event()
        self.left_no_record = False
        """True if the rank has ended, or counts as ended without a start, and no record shows its outcome."""
        self._group = group
        self._errors = group.supervisors_log
        self._on_end = on_end
        self._spawned = 0
        """The pid of a supervisor that may have to be reaped; 0 if there is none."""
        self._pidfd: int | None = None
        self._pid = 0
        """The pid of the supervisor, while it is known to be alive."""
        self._ending: asyncio.Task[None] | None = None
        self._end: RankObservation | None = None
        self._is_starting = False
        self._is_closed = False

    async def start(self) -> None:
        """Start the supervisor if none was started before.

        Wait until the command runs or has failed to start. Raises LaunchFailed if the supervisor cannot
        start, and OSError for a temporary fault of this machine.
        """
        self._is_starting = True
        try:
            await self._spawn()
        finally:
            self._is_starting = False
        await self.follow()
        if self.is_pending:
            output = await asyncio.to_thread(_tail, self._errors)
            raise LaunchFailed(_no_supervisor(self.rank, output))

    async def follow(self) -> None:
        """Wait in the background for the supervisor's end, or handle the end if it has ended already.

        Do nothing if the supervisor was not started yet, or is being started. Raises OSError for a temporary
        fault.
        """
        # On a busy disk, a supervisor that is being started may take half a minute to write its record. So
        # `start` follows it later.
        if not self._is_starting:
            await self._follow(unless_starting=True)

    async def _follow(self, *, unless_starting: bool = False) -> None:
        if not self.is_pending:
            return
        # No event announces the record that a starting supervisor is about to write, so the files are polled.
        deadline = time.monotonic() + _RECORD_SECONDS
        while (found := await asyncio.to_thread(_find, self.folder)).is_unwritten:
            if time.monotonic() > deadline:
                log.warning("%s: stopping a process that has no record", self.folder.path)
                break
            await asyncio.sleep(0.01)
            if unless_starting and self._is_starting:
                return
        self.restarts = max(self.restarts, found.restarts)
        if not self.is_pending or not found.was_started or (unless_starting and self._is_starting):
            # A concurrent call already follows the supervisor or starts it, or there is no supervisor yet.
            if found.pidfd is not None:
                os.close(found.pidfd)
        elif found.pidfd is None:
            self._ending = self._finishing(None)
            await asyncio.wait([self._ending], timeout=_RECORD_SECONDS)  # the task may take longer
        else:
            asyncio.get_running_loop().add_reader(
                found.pidfd, self._supervisor_ended, found.pid, found.session
            )
            self._pidfd, self._pid = found.pidfd, found.pid

    async def give_up_if_pending(self) -> None:
        """If the rank was never started, count it as ended. The order to stop prevents a later start."""
        await self._follow()
        if self.is_pending:
            self._reap()
            self._end = RankObservation(self._status(Phase.STOPPED))
            self.left_no_record = True
            self.ended.set()

    @property
    def is_pending(self) -> bool:
        """Whether no start of the rank is known yet."""
        return self._pidfd is None and self._ending is None and not self.ended.is_set()

    @property
    def is_running(self) -> bool:
        """Whether the supervisor is known to be alive."""
        return self._pidfd is not None

    def observe(self) -> RankObservation:
        """Return the current state of the rank."""
        if self._end is not None:
            return self._end
        return RankObservation(self._status(Phase.PENDING if self.is_pending else Phase.RUNNING))

    async def pid(self) -> int | None:
        """Return the pid of the rank's first process; None if the rank does not run."""
        if not self.is_running:
            return None
        found = await asyncio.to_thread(_find, self.folder)
        if found.pidfd is not None:
            os.close(found.pidfd)
        return found.session if self.is_running else None

    def signal(self, number: int) -> None:
        """Send the signal to the supervisor, if it is alive."""
        if self._pidfd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    async def kill(self) -> None:
        """Kill the rank's processes and their supervisor, if it is alive. `ended` is set later."""
        if self._pidfd is not None:
            # If this call is cancelled, the kill goes on, and the thread closes its descriptor itself.
            await asyncio.shield(asyncio.to_thread(_kill, self._pid, os.dup(self._pidfd)))

    async def close(self) -> None:
        """Stop following. The rank continues to run."""
        self._is_closed = True
        self._stop_following()
        if self._ending is not None:
            await self._ending

    def _status(self, phase: Phase, code: int | None = None) -> RankStatus:
        return RankStatus(self.rank, phase, code, restarts=self.restarts)

    def _stop_following(self) -> None:
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _supervisor_ended(self, pid: int, session: int | None) -> None:
        """Handle the end of the supervisor `pid`.

        `session` is the session of the rank's processes. The end is handled at once, because the kernel
        may soon reuse both numbers.
        """
        self._stop_following()
        self._spawned = pid
        self._reap()
        self._ending = self._finishing(session)

    def _reap(self) -> None:
        if self._spawned:
            with suppress(ChildProcessError):  # an earlier service started it, so it is not our child
                os.waitpid(self._spawned, os.WNOHANG)
            self._spawned = 0

    def _finishing(self, session: int | None) -> asyncio.Task[None]:
        return background(self._finish(session), f"the end of {self.folder.path.name}")

    async def _finish(self, session: int | None) -> None:
        """Read how the rank ended. If no record shows this, kill the processes that the supervisor left."""
        while self._end is None and not self._is_closed:
            try:
                end = await asyncio.to_thread(self._read_end)
                if end is None:
                    self.left_no_record = True
                    await asyncio.to_thread(sweeping.kill_all_below, self.folder.path, session)
                    # If a supervisor was still alive, it has usually recorded the end by now, since its rank
                    # was killed first.
                    end = await asyncio.to_thread(lambda: self._read_end() or self._lost())
                self._end = end
            except Exception as error:  # if this task ended with an error, the group could never be stopped
                is_passing = isinstance(error, OSError)
                message = "%s: the end of the rank cannot be read yet; trying again: %s"
                log.warning(message, self.folder.path, error, exc_info=None if is_passing else error)
                await asyncio.sleep(_RETRY_SECONDS)
        self._reap()
        if self._end is not None:
            self.ended.set()
            self._on_end()

    def _lost(self) -> RankObservation:
        if self._group.is_to_stop():  # the service itself may have killed the supervisor
            return RankObservation(self._status(Phase.STOPPED))
        output = f"{self._log_end()}\n{_tail(self._errors)}"
        return RankObservation(self._status(Phase.FAILED), supervisor_lost(self.rank, output.strip()))

    def _read_end(self) -> RankObservation | None:
        """Return how the rank ended; None if that is not recorded. Raises OSError for a temporary fault."""
        end = self.folder.exit_record()
        if end is None:
            return None
        tail = self._log_end()
        code = end.code if end.code >= 0 else 128 - end.code
        program = next(iter(self.folder.arguments()), "")
        diagnosis = diagnose(self.rank, end, tail, program, uploaded=self.folder.has_copy())
        if end.stopped:
            return RankObservation(self._status(Phase.STOPPED, code), ended_at=end.at)
        phase = Phase.FAILED if diagnosis else Phase.SUCCEEDED
        last_lines = "" if diagnosis else tail[-_LAST_WORDS:]
        return RankObservation(self._status(phase, code), diagnosis, end.at, last_lines)

    def _log_end(self) -> str:
        return evidence_of(segments.tail(self.folder.log, READ_LINES, READ_BYTES))

    async def _spawn(self) -> None:
        """Start a supervisor, and wait for its answer. Do nothing if one was started before.

        Raises the same errors as `start`.
        """
        ready, ready_in = os.pipe()
        try:
            try:
                spawned = await asyncio.to_thread(_spawn_first, self.folder, ready_in, self._errors)
            finally:
                os.close(ready_in)
            if not spawned:
                return
            self._spawned = spawned
            async with asyncio.timeout(_START_SECONDS):
                answer = await _answer(ready)
        except TimeoutError as error:
            late = _no_supervisor(self.rank, f"no answer in {_START_SECONDS:g} s", retryable=True)
            raise LaunchFailed(late) from error
        except OSError as error:
            raise self._passing_or_failed(error) from error
        finally:
            os.close(ready)
        if answer.isdigit():
            raise self._passing_or_failed(OSError(int(answer), os.strerror(int(answer))))

    def _passing_or_failed(self, error: OSError) -> Exception:
        return error if local_faults.remedy_of(error) else LaunchFailed(_no_supervisor(self.rank, str(error)))


def _kill(supervisor: int, pidfd: int) -> None:
    try:
        sweeping.kill_with_descendants(supervisor, pidfd)
    finally:
        os.close(pidfd)


def _find(folder: RankFolder) -> _Found:
    """Return what is known about the rank's supervisor. Raises OSError for a temporary fault."""
    restarts = folder.restarts()
    record = folder.processes()
    if record is None:
        is_supervised = folder.is_supervised()
        was_started = is_supervised or folder.was_started()
        # The supervisor may have taken the lock between the first two checks, so the lock is checked again.
        is_unwritten = is_supervised or (was_started and folder.is_supervised())
        return _Found(restarts, was_started, is_unwritten=is_unwritten)
    pidfd = None
    try:
        try:
            pidfd = os.pidfd_open(record.supervisor)
        except OSError as error:  # the process is gone, or training code wrote a wrong pid
            if local_faults.hinders_reading(error):
                raise
        # Training can write the record, so check that the process is this rank's supervisor. Only this
        # supervisor holds the lock, and only while it lives. If the lock is held, no other process has got
        # the supervisor's pid.
        if pidfd is not None and _supervises(record.supervisor, folder.path) and folder.is_supervised():
            child = stat_of(record.child)
            found = _Found(
                restarts,
                was_started=True,
                pidfd=pidfd,
                pid=record.supervisor,
                session=record.child if child is not None and child.parent == record.supervisor else None,
            )
            pidfd = None
            return found
    finally:
        if pidfd is not None:
            os.close(pidfd)
    return _Found(restarts, was_started=True)


def _supervises(pid: int, folder: Path) -> bool:
    """Return whether the process was started as the supervisor of the rank with this folder, or is exiting.

    An exiting process has lost its arguments, but may still hold the lock of its rank for a moment.
    """
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    if not arguments:
        stat = stat_of(pid)
        return stat is not None and stat.is_exiting
    *_, script, argument, _ = (b"", b"", *arguments.split(b"\0"))
    return script.endswith(b"/supervisor.py") and argument == os.fsencode(folder)


def _spawn_first(folder: RankFolder, ready: int, errors: Place) -> int:
    """Start the supervisor of a rank and return its pid; 0 if one was started before."""
    return 0 if folder.was_started() else spawn_supervisor(folder, ready, errors)


def spawn_supervisor(folder: RankFolder, ready: int, errors: Place) -> int:
    """Start the supervisor of a rank whose folder is prepared, and return its pid.

    `ready` is the pipe for its answer.
    """
    # posix_spawn neither copies the service's memory nor passes on other descriptors.
    output = errors.append()
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", str(_SUPERVISOR), str(folder.path)],
            {},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, ready, 3),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
            ],
            setsid=True,
        )
    finally:
        os.close(output)


async def _answer(pipe: int) -> bytes:
    """Wait until the other end of the pipe is closed or written to. Return what was written."""
    loop = asyncio.get_running_loop()
    is_readable = asyncio.Event()
    loop.add_reader(pipe, is_readable.set)
    try:
        await is_readable.wait()
    finally:
        loop.remove_reader(pipe)
    return os.read(pipe, 16)


def _tail(place: Place) -> str:
    """Return the last lines of a file, at most _TAIL_BYTES; "" if it cannot be read."""
    try:
        with place.open() as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-_ERROR_LINES:])


def _no_supervisor(rank: int, detail: str, *, retryable: bool = False) -> Diagnosis:
    return Diagnosis(
        category=Category.LAUNCH_FAILED,
        summary=f"Rank {rank} could not be started.",
        resolution="Read the detail: it holds the error of the process that supervises the rank.",
        detail=detail,
        retryable=retryable,
        rank=rank,
    )

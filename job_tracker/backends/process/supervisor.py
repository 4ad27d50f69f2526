"""Runs one rank, outlives the service, and keeps the exit code.

Started as `python -I -S supervisor.py RANK_FOLDER`, by nobody but the process backend, with a pipe as
descriptor 3. One is started for every rank and a job waits for it, so it imports what is quick to import
only: neither json nor signal, which take as long as the interpreter itself. In the rank's folder it

- holds `lock` as long as it lives, so that a rank never runs twice, whoever starts it;
- writes `process.json` (its own pid and its child's) before the rank's command runs;
- runs the command of `command` (see `_Command`) in a session of its own, in `work`;
- writes what it, and whatever it starts, prints into `log`, each line with its time;
- on SIGTERM ends every process of the rank, politely for as long as the group's `stop.json` says;
- writes `exit.json` when the rank has ended and nothing that it started is left;

and it closes the pipe as soon as the command runs, or cannot. If it cannot work itself, it writes the number
of the error into the pipe, so that the service knows a fault that passes, such as a full disk. If it is
killed itself, the kernel kills its child. What has to be known after a loss of power is on the disk before
anything follows from it. Linux only: it leans on sub-reapers, parent-death signals and /proc.
"""

import _signal as signal  # type: ignore[import-not-found]  # what signal wraps into enums
import _thread
import ctypes
import fcntl
import os
import resource
import sys
import time

# The last of all places, so that what is installed there hides nothing of Python's own.
sys.path.append(os.path.abspath(__file__).rpartition("/job_tracker/")[0])

from job_tracker.logs.writing import LogWriter, RecordMaker

_PR_SET_PDEATHSIG = 1  # prctl(2)
_PR_SET_CHILD_SUBREAPER = 36
_READY = 3
_DEFAULT_GRACE = 10.0
_PIPE = 64 * 1024
_LAST_WORDS_SECONDS = 5.0
_RESERVED_BYTES = 4096


def main(folder: str) -> None:
    """Run the rank whose folder this is to its end."""
    os.set_inheritable(_READY, False)
    try:
        started = _start(folder)
    except OSError as failure:
        os.write(_READY, b"%d" % (failure.errno or 0))
        raise
    if started is None:
        return
    child, output, kills_before = started
    error = child.go()
    os.close(_READY)
    status, stopped = _wait(child.pid)
    _end_descendants(child.pid, grace=0.0)
    output.finish()
    import json  # not before: nobody waits for it now

    end = {
        "code": os.waitstatus_to_exitcode(status),
        "error": error,
        "stopped": stopped,
        "oom_kills": _kernel_oom_kills() - kills_before,
        "at": time.time(),
    }
    _publish("exit.json", json.dumps(end))


def _start(folder: str) -> "tuple[_Child, _Output, int] | None":
    """Fork the rank's process, which waits for the word to go; None if the rank is not to run."""
    os.chdir(folder)
    if not _lock():
        return None  # another supervisor has this rank
    if os.path.exists("exit.json") or os.path.exists("../stop.json"):
        return None  # it has run to its end before, or it is to run no more
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    # Children of children that lose their parent become ours, so none can get away by a double fork.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    kills_before = _kernel_oom_kills()
    _reserve("exit.json")
    command = _Command.read()
    output = _Output(command.most_log)
    child = _Child(command, output.inlet)
    output.read()
    # Only when this is written may the command run: whoever finds it running finds its record too.
    _publish("process.json", f'{{"supervisor": {os.getpid()}, "child": {child.pid}}}')
    return child, output, kills_before


class _Command:
    """What to run, as it stands in `command`: fields that each end with a NUL, since none can hold one.

    The limit of its memory in bytes, or nothing; how many bytes of its log are kept; how many arguments;
    these; NAME=VALUE of its environment.
    """

    def __init__(self, fields: list[bytes]) -> None:
        arguments = int(fields[2])
        self.memory_limit_bytes = int(fields[0]) if fields[0] else None
        self.most_log = int(fields[1])
        self.argv = fields[3 : 3 + arguments]
        self.environment = dict(field.split(b"=", 1) for field in fields[3 + arguments :])

    @classmethod
    def read(cls) -> "_Command":
        with open("command", "rb") as file:
            return cls(file.read().split(b"\0")[:-1])


class _Output:
    """A pipe into the rank's log, read by a thread until everybody who may write into it has ended."""

    def __init__(self, most_log: int) -> None:
        self._log = LogWriter("log", most_log)
        self._outlet, self.inlet = os.pipe()
        self._is_read = _thread.allocate_lock()

    def read(self) -> None:
        """To be called when the child is forked: then its end of the pipe is not ours any more."""
        os.close(self.inlet)
        self._is_read.acquire()
        _thread.start_new_thread(self._copy, ())

    def finish(self) -> None:
        """Wait until all is in the log. Nobody writes any more, unless the pipe was handed to strangers."""
        self._is_read.acquire(timeout=_LAST_WORDS_SECONDS)

    def _copy(self) -> None:
        maker = RecordMaker()
        while data := os.read(self._outlet, _PIPE):
            self._log.write(maker.records(data))
        self._log.write(maker.rest())
        self._is_read.release()


class _Child:
    """The forked process that becomes the rank's command once it is told to go."""

    def __init__(self, command: _Command, log: int) -> None:
        go_out, self._go = os.pipe()
        self._result, result_in = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._go)
            _become(command, parent, go_out, result_in, log)
        for fd in (go_out, result_in):
            os.close(fd)

    def go(self) -> dict[str, object] | None:
        """Let the command run. Says why it could not be executed; None if it was."""
        os.write(self._go, b"!")
        os.close(self._go)
        with os.fdopen(self._result, "rb") as pipe:  # closed by the kernel as the command starts
            number, _, file = os.fsdecode(pipe.read()).partition(" ")
        return {"errno": int(number), "file": file} if number else None


def _become(command: _Command, parent: int, go: int, result: int, log: int) -> None:
    try:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        if os.read(go, 1) == b"!" and os.getppid() == parent:
            _execute(command, log)
    except OSError as error:
        os.write(result, b"%d %s" % (error.errno or 0, os.fsencode(error.filename or "")))
    finally:
        os._exit(127)


def _execute(command: _Command, log: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    if command.memory_limit_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (command.memory_limit_bytes,) * 2)
    # What is ignored stays so through an exec: SIGPIPE by Python, SIGINT by a shell that ran us with &.
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    os.chdir("work")
    os.execvpe(command.argv[0], command.argv, command.environment)


def _wait(child: int) -> tuple[int, bool]:
    """Wait for the child, or for the order to stop. Returns its wait status and whether we were told."""
    while True:
        while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
            if reaped[0] == child:
                return reaped[1], False
        if signal.sigwait({signal.SIGCHLD, signal.SIGTERM}) == signal.SIGTERM:
            status = _end_descendants(child, _grace())
            assert status is not None, "the child was not reaped before"
            return status, True


def _end_descendants(child: int, grace: float) -> int | None:
    """End every process below us: SIGTERM, `grace` seconds, SIGKILL, until none is left.

    Returns the wait status of `child` if it was reaped here.
    """
    status = None
    deadline = time.monotonic() + grace
    if grace:
        _signal_descendants(signal.SIGTERM)
    while True:
        try:
            reaped = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if reaped[0] == child:
            status = reaped[1]
        if reaped[0]:
            continue
        left = deadline - time.monotonic()
        if left <= 0:
            _signal_descendants(signal.SIGKILL)
        # SIGCHLD is blocked, so one that came since the waitpid above ends this wait at once.
        signal.sigtimedwait({signal.SIGCHLD}, max(0.01, left))


def _signal_descendants(number: int) -> None:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    # proc(5): "pid (name) state ppid …", where the name may hold anything, ")" too.
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry))
    below = [os.getpid()]
    while below:
        for pid in children.get(below.pop(), ()):
            below.append(pid)
            try:
                os.kill(pid, number)
            except OSError:
                pass  # gone by now


def _lock() -> bool:
    lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(10):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            time.sleep(0.01)  # a service that looks whether we live holds it for a moment
    return False


def _grace() -> float:
    import json

    try:
        with open("../stop.json") as file:
            return float(json.load(file)["grace"])
    except (OSError, ValueError, KeyError):
        return _DEFAULT_GRACE  # told to stop by somebody else than the service


def _reserve(name: str) -> None:
    """Take the place that a file will need, as long as there is some: training may fill the disk."""
    with open(name + ".part", "w") as file:
        file.write(" " * _RESERVED_BYTES)


def _publish(name: str, content: str) -> None:
    """Write a file that is whole whenever it is there, and on the disk when this returns."""
    with open(name + ".part", "r+" if os.path.exists(name + ".part") else "w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(name + ".part", name)
    folder = os.open(".", os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def _kernel_oom_kills() -> int:
    """How often the kernel has killed for want of memory: in our cgroup, or else on the whole machine.

    Where others run out of memory on the same machine, only the former tells who was meant.
    """
    for path in (*_cgroup_events(), "/proc/vmstat"):
        try:
            with open(path) as file:
                return next(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
        except (OSError, StopIteration):
            pass
    return 0


def _cgroup_events() -> list[str]:
    """Where the kernel may count that for our cgroup (cgroups(7): its version 1, and 2)."""
    try:
        with open("/proc/self/cgroup") as file:
            entries = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return []
    of_memory = [path for _, kinds, path in entries if "memory" in kinds.split(",")]
    unified = [path for _, kinds, path in entries if not kinds]
    return [
        *(f"/sys/fs/cgroup/memory{path}/memory.oom_control" for path in of_memory),
        *(f"/sys/fs/cgroup{path}/memory.events" for path in unified),
    ]


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(sys.argv[1])

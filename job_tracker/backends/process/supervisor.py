"""Runs one rank, outlives the service, and records the exit code.

The process backend starts one supervisor for each rank as `python -I -S supervisor.py RANK_FOLDER`, with a
pipe as descriptor 3. A job waits for its supervisors to start, so this program imports only modules that
load fast. Importing json or signal takes as long as the start of the interpreter. In the rank's folder, the
supervisor

- holds `lock` as long as it lives, so that a rank never runs twice;
- writes `process.json` (its own pid and its child's) before the rank's command runs;
- runs the command in the file `command` (see `_Command`) in a new session, with `work` as working directory;
- writes the output of the command and all its descendants to `log`, each line with its time;
- on SIGTERM stops every process of the rank, with the grace period of the group's `stop.json`;
- when the rank has ended, kills the descendants that are left, and then writes `exit.json`.

The supervisor closes the pipe as soon as the command runs or has failed to start. If the supervisor itself
fails before that, it writes the errno to the pipe, so that the service recognises a temporary fault such as a
full disk.
If the supervisor is killed, the kernel kills its child. Records that later steps rely on are synced to disk
first, so they survive a power failure. Linux only: it uses sub-reapers, parent-death signals and /proc.
"""

import _signal as signal  # type: ignore[import-not-found]  # `signal` without the enums, which load slowly
import _thread
import ctypes
import fcntl
import os
import resource
import sys
import time

# The folder that contains the package job_tracker comes last on the path, so that other packages in it cannot
# hide Python's own modules.
sys.path.append(os.path.abspath(__file__).rpartition("/job_tracker/")[0])

from job_tracker.logs.writing import LogWriter, RecordMaker

_PR_SET_PDEATHSIG = 1  # prctl(2)
_PR_SET_CHILD_SUBREAPER = 36
_READY = 3
_DEFAULT_GRACE = 10.0
_PIPE = 64 * 1024
_LAST_WORDS_SECONDS = 5.0
# How long a supervisor waits for the lock. A service that checks for a live supervisor holds the lock for a
# moment, or longer on a busy machine, where the service waits for a processor.
_LOCK_SECONDS = 5.0
_RESERVED_BYTES = 4096


def main(folder: str) -> None:
    """Run the rank of this folder until it ends."""
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
    _publish(
        "exit.json",
        f'{{"code": {os.waitstatus_to_exitcode(status)}, "error": {_json(error)}, '
        f'"stopped": {_json(stopped)}, "oom_kills": {_kernel_oom_kills() - kills_before}, '
        f'"at": {time.time()!r}}}',
    )


def _json(value: bool | dict[str, object] | None) -> str:
    """Return the value as JSON.

    This imports the json module only for errors, because the import takes as long as the start of Python.
    """
    if not isinstance(value, dict):
        return {None: "null", True: "true", False: "false"}[value]
    import json

    return json.dumps(value)


def _start(folder: str) -> "tuple[_Child, _Output, int] | None":
    """Fork the rank's process, which waits for `go`.

    Return the process, its output, and the number of out-of-memory kills until now. None: the rank must not
    run.
    """
    os.chdir(folder)
    if reason := _obstacle():
        # If the service expects the rank to run, the diagnosis of the job quotes this line.
        os.write(2, f"{os.path.basename(folder)} is not started: {reason}\n".encode())
        return None
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    # Orphaned descendants become children of this process, so no descendant escapes by a double fork.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    kills_before = _kernel_oom_kills()
    _reserve("exit.json")
    command = _Command.read()
    output = _Output(command.most_log)
    child = _Child(command, output.inlet)
    output.read()
    # The command runs only after this record is written, so a running command always has a record.
    _publish("process.json", f'{{"supervisor": {os.getpid()}, "child": {child.pid}}}')
    return child, output, kills_before


class _Command:
    """The content of `command`: NUL-terminated fields, because no field can contain a NUL.

    The fields: the memory limit in bytes or nothing, the bytes of log to keep, the number of arguments,
    the arguments, and the environment as NAME=VALUE.
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
    """A pipe into the rank's log. A thread reads the pipe until all processes that hold it have ended."""

    def __init__(self, most_log: int) -> None:
        self._log = LogWriter("log", most_log)
        self._outlet, self.inlet = os.pipe()
        self._is_read = _thread.allocate_lock()

    def read(self) -> None:
        """Start reading.

        Call this after the child is forked, because the call closes this process's copy of the write end.
        """
        os.close(self.inlet)
        self._is_read.acquire()
        _thread.start_new_thread(self._copy, ())

    def finish(self) -> None:
        """Wait until all output is in the log.

        The wait has a limit, because a foreign process may hold the pipe open.
        """
        self._is_read.acquire(timeout=_LAST_WORDS_SECONDS)

    def _copy(self) -> None:
        maker = RecordMaker()
        while data := os.read(self._outlet, _PIPE):
            self._log.write(maker.records(data))
        self._log.write(maker.rest())
        self._is_read.release()


class _Child:
    """The forked process that becomes the rank's command after `go`."""

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
        """Let the command run. Return the error if it could not be executed; None if it runs."""
        os.write(self._go, b"!")
        os.close(self._go)
        with os.fdopen(self._result, "rb") as pipe:  # when the command starts, exec closes the other end
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
    # Ignored signals would stay ignored after the exec. Python ignores SIGPIPE, and SIGINT is ignored if a
    # shell has started the service with &.
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    os.chdir("work")
    os.execvpe(command.argv[0], command.argv, command.environment)


def _wait(child: int) -> tuple[int, bool]:
    """Wait until the child has ended. If SIGTERM comes, end the child and all other descendants.

    Return the child's wait status and whether SIGTERM came.
    """
    while True:
        while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
            if reaped[0] == child:
                return reaped[1], False
        if signal.sigwait({signal.SIGCHLD, signal.SIGTERM}) == signal.SIGTERM:
            status = _end_descendants(child, _grace())
            assert status is not None, "the child was reaped before it was stopped"
            return status, True


def _end_descendants(child: int, grace: float) -> int | None:
    """End all descendants: send SIGTERM, wait for `grace` seconds, then send SIGKILL until none is left.

    Return the wait status of `child` if this call has reaped it; otherwise None.
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
        # SIGCHLD is blocked, so a SIGCHLD that arrived after the waitpid above ends this wait at once.
        signal.sigtimedwait({signal.SIGCHLD}, max(0.01, left))


def _signal_descendants(number: int) -> None:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    # proc(5): "pid (name) state ppid …". The name may contain any character, even ")".
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
                pass  # the process is gone


def _obstacle() -> str:
    """Take the lock, and return why the rank must not run; "" if it may run."""
    if not _lock():
        return "another supervisor runs it"
    if os.path.exists("exit.json"):
        return "it has ended already (exit.json)"
    return "its group is being stopped (stop.json)" if os.path.exists("../stop.json") else ""


def _lock() -> bool:
    lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)


def _grace() -> float:
    import json

    try:
        with open("../stop.json") as file:
            return float(json.load(file)["grace"])
    except (OSError, ValueError, KeyError):
        return _DEFAULT_GRACE  # the service did not send SIGTERM, or could not write the file


def _reserve(name: str) -> None:
    """Reserve the disk space of a file early: training may fill the disk later."""
    with open(name + ".part", "w") as file:
        file.write(" " * _RESERVED_BYTES)


def _publish(name: str, content: str) -> None:
    """Write a file atomically and sync it to disk."""
    with open(name + ".part", "r+" if os.path.exists(name + ".part") else "w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(name + ".part", name)
    folder = os.open(".", os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def _kernel_oom_kills() -> int:
    """Return the number of the kernel's out-of-memory kills in our cgroup.

    If that is unknown, return their number on the whole machine, which includes kills of other programs.
    """
    for path in (*_cgroup_events(), "/proc/vmstat"):
        try:
            with open(path) as file:
                return next(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
        except (OSError, StopIteration):
            pass
    return 0


def _cgroup_events() -> list[str]:
    """Return the files that may have the number of out-of-memory kills in our cgroup (cgroups(7), versions
    1 and 2).
    """
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

"""Reports which code the processes of a rank are executing, as seen from outside the processes.

The text of this program is an argument of python3.

usage: python3 -I -S -c TEXT

The program needs only Python 3.7 or later. It runs as the user of the rank: in the rank's container or pod,
or, with the process backend, beside the rank's processes. In the latter case, RANK_PID is the pid of the
rank's first process. The program prints one JSON object. If the rank's standard error or output is a pipe,
this program also writes the result into the pipe, in readable form, so that the rank's log has it.

The program neither stops processes nor attaches to them. Processes may be hostile, so everything that is read
from them is bounded.
"""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_SECONDS = 8
"""The seconds after which this program ends in any case."""
_SPY_SECONDS = 3.0
_SIGNAL_SECONDS = 1.0
MOST_PROCESSES = 32
"""The largest number of training processes that are reported. A machine has at most 16 accelerators."""
_MOST_SEEN = 20000
_MOST_OF_SPY, _MOST_OF_FILE = 16 << 20, 1 << 20
_MOST_THREADS, _MOST_FRAMES = 64, 40
_MOST_PRINTED, _MOST_LOGGED = 8 * 1024, 64 * 1024
_MEMORY = 2 << 30
_MOST_SPIED_THREADS = 4000  # py-spy gives up at 4,096 threads, after some seconds
_MEMFD = re.compile(r"/memfd:trainer-kit-stacks-(\d\d)-(\d\d) ")
_CALL = re.compile(r'  File "(.{1,500})", line (\d{1,9}) in (.{1,200})$')
_STATES = {
    "T": "is stopped by a signal (state T)",
    "t": "is stopped by a debugger (state t)",
    "D": "waits in the kernel, perhaps for a disk or a file server (state D)",
    "Z": "has ended, but its parent has not noticed it (state Z)",
    "R": "runs (state R)",
    "S": "waits (state S)",
}


def main() -> None:
    """Look at the processes of the rank, and print what was found."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_SECONDS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    root = int(os.environ.get("RANK_PID") or 0)
    processes = _processes(root)
    first = root or min(processes, default=0)
    trainers = _trainers(processes, first)
    found = [_look_at(pid, each) for pid, each in trainers]
    sys.stdout.write(
        json.dumps({"processes": [dict(each, stacks=each["stacks"][:_MOST_PRINTED]) for each in found]})
    )
    sys.stdout.flush()
    _write_to_log([first] + [pid for pid, _ in trainers], found)


class _Process:
    def __init__(self, pid: int, parent: int, state: str) -> None:
        self.parent, self.state = parent, state
        environment = _read(f"/proc/{pid}/environ", _MOST_OF_FILE).split(b"\0")
        self.number = _number(environment)
        self.is_elastic = any(each.startswith(b"TORCHELASTIC_RUN_ID=") for each in environment)
        self.is_python = _is_python(pid)


def _processes(root: int) -> dict[int, _Process]:
    """Return the process `root` and its descendants, by pid.

    If `root` is 0, return all processes except this one and its ancestors. But process 1 is returned even if
    it is an ancestor.
    """
    stats: dict[int, tuple[int, str]] = {}
    for pid in sorted(int(entry) for entry in os.listdir("/proc") if entry.isdigit())[:_MOST_SEEN]:
        # proc(5): "pid (name) state ppid ...". The name may contain any character, even ")".
        fields = _read(f"/proc/{pid}/stat", 4096).rpartition(b")")[2].split()
        if len(fields) > 2:
            stats[pid] = int(fields[1]), fields[0].decode("ascii", "replace")
    own = set()
    pid = os.getpid()
    while not root and pid in stats and pid != 1:
        own.add(pid)
        pid = stats[pid][0]
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in stats.items():
        children.setdefault(parent, []).append(pid)
    if not root:
        return {pid: _Process(pid, *each) for pid, each in stats.items() if pid not in own}
    found: dict[int, _Process] = {}
    below = [root]
    while below:
        pid = below.pop()
        if pid in stats and pid not in found:
            found[pid] = _Process(pid, *stats[pid])
            below += children.get(pid, ())
    return found


def _trainers(processes: Mapping[int, _Process], first: int) -> list[tuple[int, _Process]]:
    """Return the Python processes that train, one for each value of the variable RANK, with their pids.

    If no Python process has RANK, return the first Python process, or else the first process.

    If several processes have the same RANK, only the one with the fewest ancestors counts: workers that load
    data are its descendants. If torchrun has started some of the processes, only these count: a launcher
    above them may have the same RANK. Processes that torchrun has started are recognised by a variable of
    torchrun.
    """

    def depth(pid: int) -> int:
        steps = 0
        while pid in processes and steps < 100:
            pid, steps = processes[pid].parent, steps + 1
        return steps

    known = [pid for pid, each in processes.items() if each.number is not None and each.is_python]
    of_torchrun = [pid for pid in known if processes[pid].is_elastic]
    chosen: dict[int, int] = {}
    for pid in sorted(of_torchrun or known, key=lambda pid: (depth(pid), pid)):
        chosen.setdefault(processes[pid].number or 0, pid)
    pids = [chosen[number] for number in sorted(chosen)][:MOST_PROCESSES]
    if not pids:
        pythons = [pid for pid, each in processes.items() if each.is_python]
        pids = sorted(pythons, key=lambda pid: (depth(pid), pid))[:1] or [
            pid for pid in (first,) if pid in processes
        ]
    return [(pid, processes[pid]) for pid in pids]


def _number(environment: Sequence[bytes]) -> int | None:
    value = next((each[5:] for each in environment if each.startswith(b"RANK=")), b"")
    return int(value) if value.isdigit() and len(value) < 8 else None


def _is_python(pid: int) -> bool:
    try:
        if os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python"):
            return True
    except OSError:
        return False
    return b"/libpython" in _read(f"/proc/{pid}/maps", _MOST_OF_FILE)


def _look_at(pid: int, process: _Process) -> dict[str, Any]:
    status = _status(pid)
    stacks, problem = "", ""
    if process.is_python:
        if _small(status.get("Threads")) <= _MOST_SPIED_THREADS:
            stacks, problem = _spied(pid)
        else:
            problem = "py-spy does not read so many threads"
        if not stacks and process.state not in "TtZ":
            stacks = _by_signal(pid)
        problem = "" if stacks else problem
        stacks = _from_working_folder(stacks, pid)
    where = _read(f"/proc/{pid}/wchan", 200).decode("ascii", "replace").strip("\0\n ")
    return {
        "number": process.number,
        "pid": pid,
        "name": status.get("Name", "")[:64],
        "state": process.state,
        "standing": _STATES.get(process.state, f"is in state {process.state}"),
        "traced_by": _small(status.get("TracerPid")),
        "threads": _small(status.get("Threads")),
        "kernel": where if where != "0" else "",
        "stacks": stacks,
        "problem": problem[:500],
    }


def _from_working_folder(stacks: str, pid: int) -> str:
    """Return the stacks with file names relative to the working folder of the process, as in trainer_kit's
    stacks.
    """
    try:
        folder = os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return stacks
    return stacks.replace(f"\n  {folder}/", "\n  ") if folder != "/" else stacks


def _spied(pid: int) -> tuple[str, str]:
    """Return the stacks of a process from py-spy, and the reason if there are none.

    If there are stacks, the reason is empty; otherwise, the stacks are empty. py-spy can also read a process
    that a signal or a debugger has stopped.
    """
    spy = _spy()
    if spy is None:
        return "", "py-spy is not installed where the rank runs"
    output, errors = _run(
        [spy, "dump", "--nonblocking", "--json", "--pid", str(pid)], _SPY_SECONDS, _MOST_OF_SPY
    )
    try:
        threads = json.loads(output.decode("utf-8", "replace"))
        threads.sort(key=lambda thread: (thread["os_thread_id"] != pid, thread["os_thread_id"] or 0))
        named = [(_name(thread, pid), [_call(frame) for frame in thread["frames"]]) for thread in threads]
    except (ValueError, TypeError, KeyError, AttributeError):
        said = [line.strip() for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
        known = next((line for line in said if "ermission" in line), said[0] if said else "no answer in time")
        return "", "py-spy: " + known
    return _text(named), ""


def _spy() -> str | None:
    folders = [os.path.dirname(sys.executable or ""), *os.environ.get("PATH", os.defpath).split(os.pathsep)]
    paths = (os.path.join(folder, "py-spy") for folder in folders if os.path.isabs(folder))
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def _name(thread: Mapping[str, Any], pid: int) -> str:
    return (
        "MainThread" if thread["os_thread_id"] == pid else str(thread.get("thread_name") or "unknown")[:100]
    )


def _call(frame: Mapping[str, Any]) -> str:
    return f"{str(frame['filename'])[:500]}:{int(frame['line'])} in {str(frame['name'])[:200]}"


def _run(command: Sequence[str], seconds: float, most: int) -> tuple[bytes, bytes]:
    """Run a command, and return its output and its errors.

    The command is killed after `seconds`, or once its output or its errors have `most` bytes or more.
    """

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))

    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=limited,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return b"", str(error).encode()
    assert child.stdout is not None
    assert child.stderr is not None
    end = time.monotonic() + seconds
    read = {child.stdout.fileno(): b"", child.stderr.fileno(): b""}
    left = list(read)
    while left and time.monotonic() < end and max(map(len, read.values())) < most:
        for pipe in select.select(left, [], [], max(0.0, end - time.monotonic()))[0]:
            piece = os.read(pipe, 1 << 16)
            read[pipe] += piece
            if not piece:
                left.remove(pipe)
    if left:
        child.kill()
    child.wait()
    return read[child.stdout.fileno()], read[child.stderr.fileno()]


def _by_signal(pid: int) -> str:
    """Return the stacks that faulthandler writes on a signal, even while a thread holds the GIL.

    trainer_kit registers faulthandler for two signals: one for all threads, and one for the main thread.
    """
    try:
        links = {fd: os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")[:4096]}
    except OSError:
        return ""
    matches = ((fd, _MEMFD.match(link)) for fd, link in links.items())
    fd, signals = next(((fd, match) for fd, match in matches if match), ("", None))
    if signals is None:
        return ""
    caught = int(_status(pid).get("SigCgt") or "0", 16)
    file = f"/proc/{pid}/fd/{fd}"
    of_all, of_main = (int(number) for number in signals.groups())
    text = ""
    for number in (of_all, of_main):  # faulthandler writes the newest 100 threads, perhaps not the main one
        if 34 <= number <= 64 and caught >> (number - 1) & 1 and "Current thread" not in text:
            text = _answer(pid, number, file) + text
    return _of_faulthandler(text)


def _answer(pid: int, number: int, file: str) -> str:
    try:
        before = os.stat(file).st_size
        os.kill(pid, number)
        end, size = time.monotonic() + _SIGNAL_SECONDS, before
        while time.monotonic() < end:
            time.sleep(0.05)
            size, last = os.stat(file).st_size, size
            if size == last > before:
                break
        with open(file, "rb") as opened:
            opened.seek(before)
            return opened.read(_MOST_OF_FILE).decode("utf-8", "replace")
    except OSError:
        return ""


def _of_faulthandler(text: str) -> str:
    named: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        call = _CALL.match(line)
        if call and named:
            named[-1][1].append("{}:{} in {}".format(*call.groups()))
        elif line.startswith(("Current thread ", "Thread ", "Stack ")):
            named.append(("MainThread" if not line.startswith("Thread ") else line.split()[1], []))
    named.sort(key=lambda each: each[0] != "MainThread")
    return _text([each for at, each in enumerate(named) if at == 0 or each[0] != "MainThread"])


def _text(named: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return stacks as trainer_kit writes them: the innermost call last."""
    parts = [
        "Thread {}:\n{}".format(name, "".join(f"  {call}\n" for call in calls[:_MOST_FRAMES][::-1]))
        for name, calls in named[:_MOST_THREADS]
    ]
    if len(named) > _MOST_THREADS:
        parts.append(f"{len(named) - _MOST_THREADS} more threads\n")
    return "".join(parts)[:_MOST_LOGGED]


def _write_to_log(pids: Sequence[int], found: Sequence[Mapping[str, Any]]) -> None:
    """Write the result into the pipe to which the rank prints. Wait at most 1 s for the pipe's reader."""
    text = "".join(_for_people(each) for each in found)[:_MOST_LOGGED]
    data = "".join(c if c.isprintable() or c == "\n" else "?" for c in text).encode("utf-8", "replace")
    pipe = next((pipe for pid in pids for fd in (2, 1) for pipe in _pipe_of(pid, fd)), None)
    end = time.monotonic() + 1
    while pipe is not None and data and time.monotonic() < end:
        try:
            data = data[os.write(pipe, data[:4096]) :]
        except BlockingIOError:
            time.sleep(0.02)
        except OSError:
            return


def _pipe_of(pid: int, fd: int) -> Iterator[int]:
    path = f"/proc/{pid}/fd/{fd}"
    try:
        if os.readlink(path).startswith("pipe:"):  # never write to a file: it may be the user's own
            yield os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return


def _for_people(each: Mapping[str, Any]) -> str:
    rank = "rank" if each["number"] is None else f"rank {each['number']}"
    kernel = ", in the kernel at {}".format(each["kernel"]) if each["kernel"] else ""
    traced = f", traced by process {each['traced_by']}" if each["traced_by"] else ""
    process = f"its process {each['pid']} ({each['name']}) {each['standing']}{kernel}{traced}"
    head = f"{rank} does not answer; {process}"
    if each["stacks"]:
        return "{}; its threads, innermost call last:\n{}".format(head, each["stacks"])
    return "{}{}\n".format(head, "; no stacks: {}".format(each["problem"]) if each["problem"] else "")


def _status(pid: int) -> dict[str, str]:
    lines = _read(f"/proc/{pid}/status", 1 << 16).decode("utf-8", "replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _small(value: str | None) -> int:
    return int(value) if value and value.isdigit() and len(value) < 10 else 0


def _read(path: str, most: int) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except (OSError, ValueError):
        return b""


if __name__ == "__main__":
    main()

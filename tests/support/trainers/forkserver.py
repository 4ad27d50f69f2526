"""Starts Python programs as fast as a fork, because large modules such as PyTorch are already imported.

python forkserver.py DESCRIPTOR MODULE[:FUNCTION]...

These modules are imported, and these functions called. Each message at the descriptor, a socket, is an order
as JSON. An order to start comes with the descriptors for standard output and error, and is answered with the
pid. An order to reap a process that has ended is answered with its exit code (-N for signal N). Before the
first answer, the server says that it has imported the modules.

This module imports nothing of ours: it is the module `__main__` of a forked program until the program
replaces it.
"""

import ctypes
import faulthandler
import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

LIBRARIES = (
    "fsspec.implementations.local",
    "torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.checkpoint.staging",
    "torch.distributed.checkpoint.state_dict_loader",
    "torch.distributed.checkpoint.state_dict_saver",
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch.nn.parallel",
    "torch.utils.data",
)
"""The modules that trainings import and that take long to import. Trainings import our code themselves."""
ENVIRONMENT = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
"""Variables that the libraries read when they are imported. They must suit the programs, too."""

LONGEST = 1 << 20
"""The most bytes of an order."""
_PR_SET_PDEATHSIG = 1


class ForkServer:
    """The client of a fork server."""

    def __init__(self, imported: Sequence[str] = LIBRARIES, python: str = sys.executable) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [python, __file__, str(theirs.fileno()), *imported],
                env=ENVIRONMENT,
                pass_fds=[theirs.fileno()],
            )
        self._turn = threading.Lock()
        self._has_imported = False

    def wait_for_imports(self) -> None:
        """Wait for the imports of the server, so that they do not count as time of the first program."""
        with self._turn:
            self._wait()

    def start(self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> "Forked":
        """Start `python ARGUMENTS...`: -c CODE, -m MODULE or a path, then the arguments of the program."""
        order = {"arguments": arguments, "folder": str(folder), "environment": environment}
        stdout, stderr = os.pipe(), os.pipe()
        try:
            pid = self.fork(order, stdout[1], stderr[1])
        finally:
            os.close(stdout[1])
            os.close(stderr[1])
        return Forked(self, pid, [sys.executable, *arguments], stdout[0], stderr[0])

    def start_with(
        self, arguments: Sequence[str], environment: Mapping[str, str], stdout: int, stderr: int
    ) -> "Forked":
        """Start a program in the current folder, with these descriptors as its output."""
        order = {"arguments": arguments, "folder": str(Path.cwd()), "environment": dict(environment)}
        return Forked(self, self.fork(order, stdout, stderr), [sys.executable, *arguments])

    def fork(self, order: Mapping[str, Any], stdout: int, stderr: int) -> int:
        """Start the process of the order with these descriptors as its output, and return its pid."""
        return self._ask(order, stdout, stderr)

    def reap(self, pid: int) -> int:
        """Return the exit code of a process that has ended. Its pid is not used again before this call."""
        return self._ask({"reap": pid})

    def close(self) -> None:
        """End the server."""
        self._socket.close()
        self._process.wait()

    def _ask(self, order: Mapping[str, Any], *descriptors: int) -> int:
        with self._turn:
            self._wait()
            socket.send_fds(self._socket, [json.dumps(order).encode()], descriptors)
            return self._answer()

    def _wait(self) -> None:
        if not self._has_imported:
            self._answer()
            self._has_imported = True

    def _answer(self) -> int:
        answer = self._socket.recv(LONGEST)
        assert answer, "the fork server has ended"
        return int(answer)


class Forked(subprocess.Popen[str]):
    """A process of a fork server, with the methods of subprocess.Popen."""

    def __init__(
        self,
        server: ForkServer,
        pid: int,
        args: list[str],
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> None:
        self.args = args
        self.pid = pid
        self.returncode: Any = None
        self.stdin = None
        self.stdout = None if stdout is None else os.fdopen(stdout)
        self.stderr = None if stderr is None else os.fdopen(stderr)
        self._server = server
        self._descriptor = os.pidfd_open(pid)

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            end = select.poll()
            end.register(self._descriptor, select.POLLIN)
            if not end.poll(None if timeout is None else timeout * 1000):
                assert timeout is not None
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = self._server.reap(self.pid)
            os.close(self._descriptor)
        code: int = self.returncode
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._descriptor, sig)

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[Any, Any]:  # noqa: A002
        assert input is None
        assert self.stdout
        assert self.stderr
        with ThreadPoolExecutor() as readers, self.stdout, self.stderr:
            output = [readers.submit(_rest_of, stream) for stream in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()  # otherwise readers would wait for its end
                raise
            return output[0].result(), output[1].result()


def _rest_of(stream: Any) -> str:
    return "" if stream.closed else stream.read()


def serve(channel: socket.socket) -> Sequence[str]:
    """Say that all is imported, then fork a process for each order.

    This function returns only in the new processes, with the arguments of the program.
    """
    channel.send(b"0")
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, LONGEST, 2)
        if not message:
            os._exit(0)
        order = json.loads(message)
        if "reap" in order:
            _, status = os.waitpid(order["reap"], 0)
            channel.send(b"%d" % os.waitstatus_to_exitcode(status))
            continue
        pid = os.fork()
        if pid == 0:
            channel.close()
            _move(order, *descriptors)
            arguments: Sequence[str] = order["arguments"]
            return arguments
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(b"%d" % pid)


def _move(order: Mapping[str, Any], stdout: int, stderr: int) -> None:
    """Give this process the folder, environment and output that the order asks for."""
    for source, target, name in ((stdout, 1, "stdout"), (stderr, 2, "stderr")):
        os.dup2(source, target)
        os.close(source)
        old = getattr(sys, name)  # made for the server's output, a file; the new one may be a pipe
        buffering = 1 if old.line_buffering else -1
        new = open(target, "w", buffering, encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.path[:0] = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    if "PYTHONFAULTHANDLER" in os.environ:
        faulthandler.enable()
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


def run(arguments: Sequence[str]) -> None:
    """Run a program as `python ARGUMENTS...` would."""
    option, *others = arguments
    if option == "-m":
        sys.path.insert(0, str(Path.cwd()))
        sys.argv = others
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    elif option == "-c":
        sys.path.insert(0, "")
        sys.argv = ["-c", *others[1:]]
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(others[0], "<string>", "exec"), vars(main))
    else:
        sys.path.insert(0, str(Path(option).parent))
        sys.argv = [*arguments]
        runpy.run_path(option, run_name="__main__")


def prepare(imported: Sequence[str]) -> None:
    """Import these modules, and call these functions."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    del sys.path[0]  # the folder of this file
    for name in imported:
        module, _, function = name.partition(":")
        found = importlib.import_module(module)
        if function:
            getattr(found, function)()
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a process with threads cannot be forked"
    gc.collect()
    gc.freeze()  # a garbage collection in a forked process would copy all shared memory


if __name__ == "__main__":
    prepare(sys.argv[2:])
    run(serve(socket.socket(fileno=int(sys.argv[1]))))

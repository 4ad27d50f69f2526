"""Runs a command in a Python environment with the packages of a requirements file. Makes it if there is none.

A rank starts this program in place of its command, in its working folder and with its environment:

    python -I -S requirements_runner.py ROOT UV FILE TREE COMMAND...

So the installation has the rights of the job, no secrets of the service, and its output is in the job's log.
ROOT/<hash>/ is an environment of this Python, and ROOT/<hash>.lock its lock, whose time is that of the last
use. ROOT/cache has what uv has downloaded, with a lock of the same kind. The hash is that of the file and of
this Python, and of TREE if the file may name others. An environment
is built in its place, since it cannot be moved. The file `complete` in it is written last; without it, the
environment is built again. The command holds the lock, shared, as long as it runs: see environments.py.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from typing import NoReturn

FAILED = "training-service: the requirements were not installed"
"""The beginning of the last line of output if the packages cannot be installed."""
EXIT_CODE = 95
_PLAIN = re.compile(rb"[A-Za-z0-9][\w.-]*\s*(\[[\w,.\s-]*\])?\s*((===?|[<>~!]=|<|>)[^/\\]*)?(;[^/\\]*)?")


def main(root: str, uv: str, file: str, tree: str, command: "list[str]") -> None:
    """Replace this program by the command, in its environment."""
    with open(file, "rb") as requirements:
        content = requirements.read()
    folder = os.path.join(root, name_of(content, tree))
    try:
        lock = _ready(folder, uv, file)
        os.utime(lock)
    except OSError as error:
        _fail(f"the environment cannot be written: {error}")
    os.set_inheritable(lock, True)  # the command holds it until it ends
    binaries = os.path.join(folder, "bin")
    environment = {
        **os.environ,
        "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "VIRTUAL_ENV": folder,
    }
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        _say(f"training-service: {command[0]}: {error.strerror}")
        sys.exit(127)


def name_of(content: bytes, tree: str) -> str:
    """Return the name of the environment: a hash of what decides on its packages."""
    digest = hashlib.sha256(content)
    digest.update(repr((sys.version, os.path.realpath(sys.executable))).encode())
    if not is_plain(content):
        digest.update(tree.encode())
    return digest.hexdigest()


def is_plain(content: bytes) -> bool:
    """Return whether no line can name another file of the tree."""
    lines = (line.partition(b" #")[0].strip() for line in content.splitlines())
    return all(not line or line.startswith(b"#") or _PLAIN.fullmatch(line) for line in lines)


def _ready(folder: str, uv: str, file: str) -> int:
    """Return the lock of a complete environment, held and shared. Raises OSError, as of a full disk."""
    os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
    complete = os.path.join(folder, "complete")
    while True:
        lock = os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)
        if _is_at(lock, f"{folder}.lock"):  # otherwise it was removed, together with the environment
            if os.path.exists(complete):
                return lock
            fcntl.flock(lock, fcntl.LOCK_EX)  # lets go of the shared one first
            if _is_at(lock, f"{folder}.lock") and not os.path.exists(complete):
                _build(folder, uv, file)
                os.sync()  # a power failure leaves no file without its content in a complete environment
                with open(f"{complete}.part", "w") as mark:
                    mark.write(f"{time.time():.0f}\n")
                os.rename(mark.name, complete)  # a full disk leaves no empty mark
        os.close(lock)


def _is_at(lock: int, path: str) -> bool:
    try:
        return os.stat(path).st_ino == os.fstat(lock).st_ino
    except FileNotFoundError:
        return False


def _build(folder: str, uv: str, file: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    cache = os.path.join(os.path.dirname(folder), "cache")
    used = os.open(f"{cache}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    fcntl.flock(used, fcntl.LOCK_SH)  # until this program ends
    os.utime(used)
    environment = {
        **os.environ,
        "UV_CACHE_DIR": cache,
        "UV_LINK_MODE": "copy",  # a job that changes its packages must not change those in the cache
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
    }
    python = os.path.join(folder, "bin", "python")
    _say(f"training-service: installing the packages of {file}")
    for arguments in (
        ("venv", "--quiet", "--no-config", "--no-project", "--python", sys.executable, folder),
        ("pip", "install", "--no-config", "--python", python, "--requirements", os.path.join(".", file)),
    ):
        try:
            code = subprocess.run(
                (uv, *arguments), env=environment, stdin=subprocess.DEVNULL, check=False
            ).returncode
        except OSError as error:
            _fail(f"{uv}: {error.strerror}")
        if code:
            shutil.rmtree(folder, ignore_errors=True)
            _fail(f"uv {arguments[0]} exited with code {code} for {file}")


def _fail(reason: str) -> NoReturn:
    _say(f"{FAILED}: {reason}")
    sys.exit(EXIT_CODE)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])

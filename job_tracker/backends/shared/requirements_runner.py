"""Runs a command in a Python environment with the packages of a requirements file.

It makes the environment if needed. An instance starts this program in place of its command, in the same
working folder and with the same variables:

python -I -S requirements_runner.py OPTIONS COMMAND...

OPTIONS are those of `main`, as JSON. In containers and pods, the text of this file comes with the command
(requirements.py), and is run by the Python of the image, which may be as old as 3.8. So the installation has
the rights of the job and no secrets of the service, and prints to the job's log.

ROOT/<hash>/ is an environment of this Python. ROOT/<hash>.lock is its lock; the time of this file is the time
of the last use. ROOT/cache has the files that uv has downloaded, and a lock of the same kind. The hash covers
the requirements file, this Python and its image. If the file may name other files, the hash covers TREE, too.
An environment is built at its final path, because it cannot be moved. The file `complete` in it is written
last; without this file, the environment is built again. The command holds a shared lock while it runs. Only
environments whose lock is free are removed.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, Optional

if TYPE_CHECKING:
    from collections.abc import Callable

FAILED = "training-service: the requirements were not installed"
"""The beginning of the last line of output if the packages cannot be installed."""
EXIT_CODE = 95
_LOCK = ".lock"
_CACHE = "cache"
_PLAIN = re.compile(rb"[A-Za-z0-9][\w.-]*\s*(\[[\w,.\s-]*\])?\s*((===?|[<>~!]=|<|>)[^/\\]*)?(;[^/\\]*)?")


def main(
    command: "list[str]",
    *,
    root: str,
    file: str,
    tree: str,
    uv: str = "",
    image: str = "",
    keep: Optional[float] = None,  # noqa: UP045  # older versions of Python run this, too
    most: int = 1,
    link_mode: str = "copy",
) -> None:
    """Replace this program by the command, in the environment of the requirements `file`.

    If there is no such environment yet, it is made first.

    In an `image`, the environment also has the packages of this Python, unless the file names other versions.
    Each user then has a separate folder in ROOT, because images may run as different users.

    `uv` is the path of uv; empty: PATH is searched for it. Environments that were not used for `keep` seconds
    are removed. If there are more than `most`, those whose last use is longest ago are removed, too. If
    `keep` is None, no environments are removed. `link_mode` is the value of uv's setting of this name.
    """
    with open(file, "rb") as requirements:
        content = requirements.read()
    if image:
        root = os.path.join(root, str(os.getuid()))
    folder = os.path.join(root, name_of(content, tree, image))
    try:
        lock = _ready(
            folder, lambda: _build(folder, uv, file, content, in_image=bool(image), link_mode=link_mode)
        )
        os.utime(lock)
        if keep is not None:
            sweep(root, keep, most)
    except OSError as error:
        _fail(f"the environment cannot be written: {error}")
    os.set_inheritable(lock, True)  # the command holds the lock until it ends
    binaries = os.path.join(folder, "bin")
    environment = {
        **os.environ,
        "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "VIRTUAL_ENV": folder,
    }
    if image:  # a program of the image, such as torchrun, starts the Python of the image
        paths = (_packages_of(folder), os.environ.get("PYTHONPATH"))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        _say(f"training-service: {command[0]}: {error.strerror}")
        sys.exit(127)


def name_of(content: bytes, tree: str, image: str = "") -> str:
    """Return the name of the environment: a hash of everything that determines its packages."""
    digest = hashlib.sha256(content)
    digest.update(repr((sys.version, os.path.realpath(sys.executable))).encode())
    if image:  # the content of a tag may change
        digest.update(repr((image, _libc())).encode())
    if not is_plain(content):
        digest.update(tree.encode())
    return digest.hexdigest()


def _libc() -> "str | None":
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (OSError, ValueError):  # this is not the GNU C library
        return None


def is_plain(content: bytes) -> bool:
    """Return whether no line of the requirements file can name another file of the tree."""
    lines = (line.partition(b" #")[0].strip() for line in content.splitlines())
    return all(not line or line.startswith(b"#") or _PLAIN.fullmatch(line) for line in lines)


def is_pinned(content: bytes) -> bool:
    """Return whether each listed package is pinned to one version. Their dependencies need not be pinned."""
    lines = [line.partition(b" #")[0].strip() for line in content.splitlines()]
    packages = [line for line in lines if line and not line.startswith((b"#", b"-"))]
    return all(b"==" in line.partition(b";")[0] or b"@" in line or b"/" in line for line in packages)


def sweep(root: str, keep: float, most: int) -> None:
    """Remove environments that were not used for `keep` seconds.

    Of the others, keep at most `most`: those that were used last. Environments of running commands stay. The
    cache of uv is removed by its time alone. Raises OSError.
    """
    locks = [
        entry.path for entry in os.scandir(root) if entry.name.endswith(_LOCK) and not entry.is_symlink()
    ]
    kept = 0
    for lock in sorted(locks, key=_used_at, reverse=True):
        is_cache = os.path.basename(lock) == _CACHE + _LOCK
        if _used_at(lock) < time.time() - keep or (kept >= most and not is_cache):
            _remove(lock)
        elif not is_cache:
            kept += 1


def _used_at(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except FileNotFoundError:
        return 0.0


def _remove(path: str) -> None:
    try:
        lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            folder = path[: -len(_LOCK)]
            with suppress(FileNotFoundError):
                # This file is removed first, so that a half-removed environment is not used after a crash.
                os.unlink(os.path.join(folder, "complete"))
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(FileNotFoundError):
                os.unlink(path)
    finally:
        os.close(lock)


def _ready(folder: str, build: "Callable[[], None]") -> int:
    """Return the descriptor of the environment's lock, which this process holds as a shared lock.

    Raises OSError. If the environment is not complete, `build` makes it first.
    """
    os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
    complete = os.path.join(folder, "complete")
    while True:
        lock = os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)
        if _is_at(lock, f"{folder}.lock"):  # otherwise the lock was removed, together with the environment
            if os.path.exists(complete):
                return lock
            fcntl.flock(lock, fcntl.LOCK_EX)  # releases the shared lock first
            if _is_at(lock, f"{folder}.lock") and not os.path.exists(complete):
                build()
                os.sync()  # a complete environment then has all contents, even after a power failure
                with open(f"{complete}.part", "w") as mark:
                    mark.write(f"{time.time():.0f}\n")
                os.rename(mark.name, complete)  # a rename, so that a full disk leaves no empty mark
        os.close(lock)


def _is_at(lock: int, path: str) -> bool:
    try:
        return os.stat(path).st_ino == os.fstat(lock).st_ino
    except FileNotFoundError:
        return False


def _build(folder: str, uv: str, file: str, content: bytes, *, in_image: bool, link_mode: str) -> None:
    program = uv or shutil.which("uv")
    if program is None:
        _fail(
            "this image has no uv, which installs them: add it to the image (pip install uv), or choose "
            "another image"
        )
    shutil.rmtree(folder, ignore_errors=True)
    cache = os.path.join(os.path.dirname(folder), _CACHE)
    used = os.open(cache + _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    fcntl.flock(used, fcntl.LOCK_SH)  # held until this program ends
    os.utime(used)
    environment = {
        **os.environ,
        "UV_CACHE_DIR": cache,
        "UV_LINK_MODE": link_mode,
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
    }
    python = os.path.join(folder, "bin", "python")
    _say(f"training-service: installing the packages of {file}")
    if in_image and not is_pinned(content):
        _say(
            f"training-service: {file} does not pin every version with ==, so instances that install it at "
            "different times may get different versions"
        )
    see_image = ("--system-site-packages",) if in_image else ()
    options = ("--quiet", "--no-config", "--no-project", "--python", sys.executable, *see_image)
    for arguments in (
        ("venv", *options, folder),
        ("pip", "install", "--no-config", "--python", python, "--requirements", os.path.join(".", file)),
    ):
        try:
            code = subprocess.run(
                (program, *arguments), env=environment, stdin=subprocess.DEVNULL, check=False
            ).returncode
        except OSError as error:
            _fail(f"{program}: {error.strerror}")
        if code:
            shutil.rmtree(folder, ignore_errors=True)
            _fail(f"uv {arguments[0]} exited with code {code} for {file}")


def _packages_of(folder: str) -> str:
    return os.path.join(folder, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")


def _fail(reason: str) -> NoReturn:
    _say(f"{FAILED}: {reason}")
    sys.exit(EXIT_CODE)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main(sys.argv[2:], **json.loads(sys.argv[1]))

"""Runs Prometheus, and promtool, which checks rules and PromQL. Both are this machine's, or from Debian's
package.
"""

import fcntl
import os
import shutil
import subprocess
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.cluster import ON_CI
from tests.support.patience import PATIENCE

_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "training-service" / "prometheus"


def promtool(*arguments: str) -> str:
    """Run promtool, which must succeed, and return its output."""
    command = [program("promtool"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def program(name: str) -> str:
    """Return the path of a Prometheus program. Without the program, the test is skipped, or fails on CI."""
    found = _find(name)
    if found is None:
        missing = f"there is no {name}: put Prometheus' programs on PATH; on Debian they are fetched"
        (pytest.fail if ON_CI else pytest.skip)(missing)
    return found


@cache
def _find(name: str) -> str | None:
    unpacked = _CACHE / "usr" / "bin" / name
    if (installed := shutil.which(name)) is not None:
        return installed
    return str(unpacked) if unpacked.exists() or _unpack(unpacked) else None


def _unpack(wanted: Path) -> bool:
    """Unpack Debian's package into the cache, without installing it. Return whether `wanted` then exists.

    Another process that looks for the program meanwhile finds the whole package, or none.
    """
    if shutil.which("apt-get") is None:
        return False
    _CACHE.parent.mkdir(parents=True, exist_ok=True)
    with _CACHE.with_suffix(".lock").open("w") as lock, TemporaryDirectory(dir=_CACHE.parent) as folder:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if wanted.exists():
            return True
        run = partial(_succeeds, Path(folder))
        if not run("apt-get", "download", "prometheus"):
            run("apt-get", "update")  # a new machine has no package lists yet
            run("apt-get", "download", "prometheus")
        packages = [str(path) for path in Path(folder).glob("prometheus_*.deb")]
        if packages and run("dpkg-deb", "-x", packages[-1], "all"):
            shutil.rmtree(_CACHE, ignore_errors=True)
            Path(folder, "all").rename(_CACHE)
        return wanted.exists()


def _succeeds(folder: Path, *command: str) -> bool:
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=100, check=False).returncode == 0

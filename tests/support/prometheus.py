"""Runs Prometheus, and promtool, which checks rules and PromQL. Both are this machine's, or from Debian's
package.
"""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.support.cluster import ON_CI

_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "training-service" / "prometheus"


def promtool(*arguments: str) -> str:
    """Run promtool, which must succeed, and return its output."""
    command = [program("promtool"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
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
    return shutil.which(name) or (str(unpacked) if unpacked.exists() or _unpack() else None)


def _unpack() -> bool:
    """Unpack Debian's package into the cache, without installing it."""
    if shutil.which("apt-get") is None:
        return False
    _CACHE.mkdir(parents=True, exist_ok=True)
    if not _succeeds("apt-get", "download", "prometheus"):
        _succeeds("apt-get", "update")  # a new machine has no package lists yet
        _succeeds("apt-get", "download", "prometheus")
    packages = [str(path) for path in _CACHE.glob("prometheus_*.deb")]
    done = bool(packages) and _succeeds("dpkg-deb", "-x", packages[-1], ".")
    for package in packages:
        Path(package).unlink()
    return done


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, cwd=_CACHE, capture_output=True, timeout=100, check=False).returncode == 0

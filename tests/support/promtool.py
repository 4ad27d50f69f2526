"""promtool, Prometheus' own check of rules and of PromQL: the machine's, or the one of Debian's package."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.support.cluster import ON_CI

_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "training-service" / "prometheus"
_MISSING = (
    "there is no promtool: put it on PATH (it comes with Prometheus), or use Debian, whose package is taken"
)


def promtool(*arguments: str) -> str:
    """What it printed, which it must do with status 0. Without it the test is skipped, and fails on CI."""
    program = _find()
    if program is None:
        (pytest.fail if ON_CI else pytest.skip)(_MISSING)
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@cache
def _find() -> str | None:
    unpacked = _CACHE / "usr" / "bin" / "promtool"
    return shutil.which("promtool") or (str(unpacked) if unpacked.exists() or _unpack() else None)


def _unpack() -> bool:
    """Unpack Debian's package into the cache, where nothing of the machine is changed by it."""
    if shutil.which("apt-get") is None:
        return False
    _CACHE.mkdir(parents=True, exist_ok=True)
    if not _succeeds("apt-get", "download", "prometheus"):
        _succeeds("apt-get", "update")  # on a new machine nothing is known of packages yet
        _succeeds("apt-get", "download", "prometheus")
    packages = [str(path) for path in _CACHE.glob("prometheus_*.deb")]
    done = bool(packages) and _succeeds("dpkg-deb", "-x", packages[-1], ".")
    for package in packages:
        Path(package).unlink()
    return done


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, cwd=_CACHE, capture_output=True, timeout=100, check=False).returncode == 0

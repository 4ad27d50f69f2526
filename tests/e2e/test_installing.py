"""The service after `pip install`: a wheel in an environment without access to a checkout."""

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.support.server import Server

ROOT = Path(__file__).parents[2]
PACKAGES = ("job_tracker", "training_service")
BUILD = "from setuptools import build_meta; import sys; build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the project, built outside of the checkout."""
    sources, target = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, sources / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    quietly(sys.executable, "-W", "ignore", "-c", BUILD, str(target), cwd=sources)
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment, which has the wheel and the libraries of the tests' environment."""
    environment = tmp_path_factory.mktemp("environment") / "venv"
    quietly(sys.executable, "-m", "venv", "--without-pip", str(environment))
    python = environment / "bin/python"
    quietly(
        *(sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index"),
        *("--no-compile", "--disable-pip-version-check", str(wheel)),
    )
    # A path in a .pth file adds packages, but not the editable installation of this project.
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


@pytest.fixture
def forked_services() -> None:
    """Services are the program of the wheel, not forked."""


def test_the_wheel_has_every_file_of_the_packages(wheel: Path) -> None:
    kept = quietly("git", "ls-files", *PACKAGES, cwd=ROOT).splitlines()
    assert len(kept) > 300
    assert set(kept) - set(zipfile.ZipFile(wheel).namelist()) == set()


def test_a_job_runs_with_nothing_but_the_wheel(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("import os, sys\nprint('rank', os.environ['RANK'], *sys.argv[1:])\n")
    monkeypatch.setattr("tests.support.server.COMMAND", str(installed / "training-service"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "manager"))
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "manager"))
        server.start().close()
        assert manager.recv(100) == b"READY=1"
    monkeypatch.delenv("NOTIFY_SOCKET")
    out = quietly(
        *(str(installed / "trainctl"), "--address", server.address),
        *("run", "-n", "2", "train.py", "--", "--lr", "0.1"),
        cwd=project,
    )
    assert sorted(out.splitlines()) == ["[0] rank 0 --lr 0.1", "[1] rank 1 --lr 0.1"]
    where = quietly(
        str(installed / "python"), "-c", "import job_tracker; print(job_tracker.__file__)", cwd=project
    )
    assert Path(where.strip()).is_relative_to(installed.parent)


def quietly(*command: str, cwd: Path | None = None) -> str:
    """Run the command to its end and return its output."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=kept, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout

"""A backend from another package is installed and configured by name, and runs jobs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import toy_backend
from tests.support.parameters import declared
from tests.support.server import PROGRAM, Server, refusal, run
from training_service._generated import training_service_pb2 as pb

PACKAGE = Path(toy_backend.__file__).parent
CONFIG = f"""
backend = "toy"
[toy]
niceness = 3
[algorithms.program]
{declared()}
[algorithms.program.toy]
command = ["python", "{PROGRAM}"]
"""


@pytest.fixture
def forked_services() -> None:
    """Services are started, not forked: the fork server has imported modules that look for backends."""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the backend, installed in a folder of its own."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site-packages")
    for name in ("pyproject.toml", "toy_backend.py"):
        (source / name).write_bytes((PACKAGE / name).read_bytes())
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
         "--no-build-isolation", "--no-index", "--target", str(target), str(source)],
        check=True,
    )  # fmt: skip
    return target


@pytest.fixture
def installed(package: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let services find the package."""
    monkeypatch.setenv("PYTHONPATH", str(package))
    return package


@pytest.mark.usefixtures("installed")
def test_jobs_run_on_a_backend_that_the_service_does_not_know(server: Server) -> None:
    (server.folder / "config.toml").write_text(CONFIG)
    with server.start() as client:
        job = client.submit("program", "1", "v1", instances=3, parameters={"PRINT": "hello"})
        assert client.wait(job).status == pb.succeed
        assert [line.text for line in client.logs(job, rank=2)] == ["hello\n"]
        failing = client.submit("program", "1", "v1", instances=2, parameters={"EXIT_CODE": "3"})
        ended = client.wait(failing)
        assert ended.status == pb.failure
        assert "exited with code 3" in ended.message


def test_its_settings_are_read_like_all_others(installed: Path, tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(installed), "TRAINING_SERVICE_TOY__NICENESS": "5"}
    file = tmp_path / "config.toml"
    file.write_text(CONFIG)
    settings = json.loads(run("config", "-c", str(file), **environment).stdout)
    assert settings["toy"] == {"niceness": 5}
    assert settings["algorithms"]["program"]["toy"]["command"] == ["python", str(PROGRAM)]
    assert refusal("config", "-c", str(file), "-s", "toy.niceness=20", **environment) == (
        "command line: toy.niceness: '20' is not allowed: it must be less than or equal to 19"
    )
    file.write_text(CONFIG.replace("[algorithms.program.toy]", "[algorithms.program.process]"))
    assert "algorithms.program.toy.command is missing; backend toy needs it" in refusal(
        "config", "-c", str(file), **environment
    )


def test_a_backend_that_is_not_installed_is_refused_with_a_list_of_the_installed_ones() -> None:
    assert refusal("config", "-s", "backend=toy") == (
        "command line: backend: 'toy' is not an installed backend; allowed: docker, fake, kubernetes, process"
    )

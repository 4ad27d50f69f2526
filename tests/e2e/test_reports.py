"""Real processes report to a real service by calls and by lines, and their artifacts are fetched."""

import hashlib
import signal
import time
from typing import TYPE_CHECKING, Any

from tests.support.patience import PATIENCE
from tests.support.watching import seen
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.server import Server
    from tests.support.trainers.forked_python import ForkedPython
else:
    ForkedPython = Server = Any

TRAINER = """
import hashlib, os, pathlib
from trainer_kit import grpc_sink
from trainer_kit.group import join
from trainer_kit.progress import reporting

grpc_sink._CLOSE_SECONDS = 240.0  # after this time, it prints the reports
with join() as group, reporting(group) as reporter:
    for step in range(1, 101):
        reporter.report(step=step, total_steps=100, loss=1 / step)
    if group.is_master:
        folder = pathlib.Path(os.environ["MODEL_URI"])
        folder.mkdir(parents=True)
        (folder / "model.bin").write_bytes(b"weights")
        digest = hashlib.sha256(b"weights").hexdigest()
        reporter.artifact("model.bin", f"{folder}/model.bin", kind="model", size=7, sha256=digest)
"""
ENDS_WHILE_THE_SERVICE_IS_AWAY = """
import os, pathlib, time
from trainer_kit.group import join
from trainer_kit.progress import reporting

with join() as group, reporting(group) as reporter:
    reporter.report(step=1, total_steps=2, loss=1.0)
    while not pathlib.Path("{gone}").exists():
        time.sleep(0.01)
    reporter.report(step=2, loss=0.5, accuracy=0.9)
    reporter.artifact("model", os.environ["MODEL_URI"])
"""
WITHOUT_GRPC = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "grpc" else find(name)
"""
SETTINGS = """
[process]
path = "{path}"
[algorithms.reporting]
version = "3f2a"
[algorithms.reporting.process]
command = ["python", "{program}"]
"""


def test_a_training_is_visible_in_its_status_series_and_artifacts(
    forked_python: ForkedPython, server: Server
) -> None:
    program = server.folder / "trainer.py"
    program.write_text(TRAINER)
    with (server.folder / "config.toml").open("a") as config:
        config.write(SETTINGS.format(path=forked_python.path, program=program))
    with server.start() as client:
        job = client.submit("reporting", "1", "v1", instances=2)
        ended = client.wait(job, timeout=PATIENCE)
        assert ended.status == pb.succeed, ended
        assert (ended.progress.step, ended.progress.total_steps) == (100, 100)
        [loss] = client.metrics(job)
        assert [(point.step, point.value) for point in loss.points] == [
            (step, 1 / step) for step in range(1, 101)
        ]
        assert "::progress::" not in "".join(piece.text for piece in client.logs(job))
        made = client.artifacts(job)
        [model] = made.artifacts
        assert (model.name, model.kind, model.fetchable) == ("model.bin", "model", True)
        assert model.sha256 == hashlib.sha256(b"weights").hexdigest()
        assert b"".join(client.fetch(job, "model.bin")) == b"weights"
        assert made.provenance.code_version == "3f2a"
        assert made.provenance.program == f"python {program}"


def test_an_image_without_grpc_reports_by_lines(forked_python: ForkedPython, server: Server) -> None:
    program = server.folder / "trainer.py"
    program.write_text(WITHOUT_GRPC + TRAINER)
    with (server.folder / "config.toml").open("a") as config:
        config.write(SETTINGS.format(path=forked_python.path, program=program))
    with server.start() as client:
        job = client.submit("reporting", "1", "v1")
        ended = client.wait(job, timeout=PATIENCE)
        assert (ended.status, ended.progress.step) == (pb.succeed, 100)
        assert "::progress::" in "".join(piece.text for piece in client.logs(job))
        assert [made.kind for made in client.artifacts(job).artifacts] == ["model"]


def test_the_last_reports_of_a_job_that_ended_while_the_service_was_away_are_kept(
    forked_python: ForkedPython, server: Server
) -> None:
    program, gone = server.folder / "trainer.py", server.folder / "gone"
    program.write_text(ENDS_WHILE_THE_SERVICE_IS_AWAY.format(gone=gone))
    with (server.folder / "config.toml").open("a") as config:
        config.write(SETTINGS.format(path=forked_python.path, program=program))
    with server.start() as client:
        job = client.submit("reporting", "1", "v1")
        seen(client, job, step=1)
    assert server.end(signal.SIGTERM) == 0
    gone.touch()
    while server.ranks():
        time.sleep(0.02)
    with server.start() as client:
        ended = client.wait(job, timeout=PATIENCE)
        assert (ended.status, ended.attempt) == (pb.succeed, 1)
        assert (ended.progress.step, ended.progress.total_steps) == (2, 2)
        assert dict(ended.progress.metrics) == {"loss": 0.5, "accuracy": 0.9}
        assert [made.name for made in client.artifacts(job).artifacts] == ["model"]

"""A training run whose workers are killed twice resumes each time, and ends with the same model."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from google.protobuf.duration_pb2 import Duration
from intent_classification import questions
from intent_classification.prepare_data import prepare

from tests.support.trainers.held import Held
from tests.support.trainings import end_of
from training_service._generated import training_service_pb2 as pb
from training_service.client import RetryPolicy

if TYPE_CHECKING:
    from tests.support.server import Server
    from tests.support.trainers.forked_python import ForkedPython
    from training_service.client import TrainingClient
else:
    ForkedPython = Server = TrainingClient = Any

PARAMETERS = {"EPOCHS": "3", "CHECKPOINT_EVERY_STEPS": "5", "CHECKPOINT_EVERY_SECONDS": "1"}
# A killed worker makes its peers crash. If its supervisor pauses for longer than the service waits for the
# root cause, the attempt counts as crashed.
SOON = RetryPolicy(max_attempts=3, backoff=Duration(nanos=100_000_000), retry_on=["crashed"])


def submit(client: TrainingClient, version: str) -> int:
    return client.submit(
        "intent-classification", "1", version, instances=3, parameters=PARAMETERS, retry_policy=SOON
    )


def at_step(client: TrainingClient, job: int, attempt: int, step: int) -> pb.GetTrainingStatusResponse:
    for seen in client.watch(job):
        if (seen.attempt, seen.status) == (attempt, pb.running) and seen.progress.step >= step:
            return seen
    raise AssertionError(f"job {job} ended before: {client.status(job)}")


def manifest(client: TrainingClient, job: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(b"".join(client.fetch(job, "manifest.json")))
    return found


def lines(pieces: Iterator[pb.GetTrainingLogsResponse]) -> list[str]:
    return "".join(piece.text for piece in pieces).splitlines()


def test_a_training_with_two_killed_workers_gives_the_model_of_an_unbroken_run(
    forked_python: ForkedPython, server: Server
) -> None:
    held = Held(server.folder, forked_python.path)
    held.hold(attempt=1, step=15)
    held.hold(attempt=2, step=40)
    (server.folder / "config.toml").write_text(f'[process]\npath = "{held.path}"\n')
    labelled = [(question.text, question.coarse) for question in questions.load()]
    version = prepare(labelled, str(server.folder / "storage"), "1").version
    with server.start() as client:
        broken = submit(client, version)
        for seen in client.watch(broken):
            if seen.progress.checkpoint.step >= 5:
                break
        assert (seen.attempt, seen.status) == (1, pb.running)
        server.rank(broken, 2).kill()
        held.release(attempt=1)
        resumed = at_step(client, broken, 2, 10)
        server.rank(broken, 1).kill()
        held.release(attempt=2)
        ended = end_of(client, broken)
        assert (ended.status, ended.attempt) == (pb.succeed, 3), ended
        unbroken = submit(client, version)
        assert end_of(client, unbroken).status == pb.succeed

        first, second = manifest(client, broken), manifest(client, unbroken)
        assert first["metrics"] == second["metrics"]
        assert first["epochs"] == second["epochs"]
        assert first["files"] == second["files"]

        # The history, the logs of the failed attempts and the series show all three attempts.
        why = [move.diagnosis.category for move in ended.moves if move.HasField("diagnosis")]
        assert len(why) == 2
        assert set(why) <= {"killed", "crashed"}
        assert resumed.progress.step >= 10
        for attempt in (2, 3):
            assert any("resuming from step" in line for line in lines(client.logs(broken, attempt=attempt)))
        assert not any("test accuracy" in line for line in lines(client.logs(broken, attempt=1)))
        [loss] = client.metrics(broken, ["loss"])
        assert {point.attempt for point in loss.points} == {1, 2, 3}

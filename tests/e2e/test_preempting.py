"""A training run with four processes gives way to a job of a higher priority, and loses nothing."""

import json
import re
from typing import TYPE_CHECKING, Any

from intent_classification import questions
from intent_classification.prepare_data import prepare

from tests.support.trainers.held import Held
from tests.support.trainings import end_of
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.server import Server
    from tests.support.trainers.forked_python import ForkedPython
    from training_service.client import TrainingClient
else:
    ForkedPython = Server = TrainingClient = Any

PARAMETERS = {"EPOCHS": "10", "CHECKPOINT_EVERY_SECONDS": "600", "CHECKPOINT_GRACE_SECONDS": "230"}
"""Nothing is saved before the notice."""
CONFIG = """
[jobs]
stop_grace = 240
[scheduling]
capacity = 4
[scheduling.queues.default.preemption]
by_priority = true
[process]
path = "{path}"
"""


def manifest(client: TrainingClient, job: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(b"".join(client.fetch(job, "manifest.json")))
    return found


def submit(client: TrainingClient, version: str) -> int:
    return client.submit("intent-classification", "1", version, instances=4, parameters=PARAMETERS)


def test_a_preempted_training_saves_goes_on_and_gives_the_model_of_an_unbroken_run(
    forked_python: ForkedPython, server: Server
) -> None:
    held = Held(server.folder, forked_python.path)
    held.hold(attempt=1, step=20)  # until the notice
    config = server.folder / "config.toml"
    config.write_text(config.read_text() + CONFIG.format(path=held.path))
    labelled = [(question.text, question.coarse) for question in questions.load()]
    version = prepare(labelled, str(server.folder / "storage"), "1").version
    with server.start() as client:
        victim = submit(client, version)
        for seen in client.watch(victim):
            if seen.progress.step >= 10:
                break
        assert not seen.progress.HasField("checkpoint")
        has_been_seen = server.folder / "has-been-seen"  # until then, the victim waits
        parameters = {"UNTIL_FILE": str(has_been_seen)}
        urgent = client.submit("program", "1", version, instances=2, priority="high", parameters=parameters)
        for seen in client.watch(victim):
            if seen.status == pb.queuing:
                break
        has_been_seen.touch()
        held.release(attempt=1)
        assert (seen.preemptions, seen.attempt) == (1, 1)
        assert seen.moves[-1].preempted == f"Preempted: job {urgent} has a higher priority."
        saved = seen.progress.checkpoint.step
        assert seen.progress.step - 1 <= saved, "at most one step is lost"
        assert end_of(client, urgent).status == pb.succeed

        ended = end_of(client, victim)
        assert (ended.status, ended.attempt, ended.preemptions) == (pb.succeed, 2, 1), ended
        assert not any(move.HasField("diagnosis") for move in ended.moves)
        log = "".join(piece.text for piece in client.logs(victim, attempt=2))
        resumed = re.search(r"resuming from step (\d+)", log)
        assert resumed is not None, log
        assert int(resumed[1]) == saved

        unbroken = submit(client, version)
        assert end_of(client, unbroken).status == pb.succeed
        first, second = manifest(client, victim), manifest(client, unbroken)
        assert first["metrics"] == second["metrics"]
        assert first["files"] == second["files"], "the models are equal, bit by bit"

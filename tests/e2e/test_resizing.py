"""A training run by torchrun becomes smaller and larger, and reaches the loss of one process."""

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from language_model import corpus
from language_model.prepare_data import prepare

from benchmarks.parallelism import metrics_of
from tests.support.parameters import declared
from tests.support.trainers.fork_fixtures import fork_torchrun
from tests.support.trainings import end_of
from tests.support.watching import comes
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.server import Server
    from tests.support.trainers.forked_python import ForkedPython
    from training_service.client import TrainingClient
else:
    Server = ForkedPython = TrainingClient = Any

SMALL = {"LAYERS": "2", "WIDTH": "32", "CONTEXT": "32", "BATCH_SIZE": "8", "STEPS": "100"}
SAVED_AT_THE_NOTICE = {"CHECKPOINT_EVERY_SECONDS": "600"}
HOLDS = {"RUN_SECONDS": "forever"}
DAY = timedelta(days=1)
TOLERANCE = 1e-4
SLOWLY = """
import os, runpy, time
from trainer_kit.progress import Reporter
report = Reporter.report
def slow(*given, **named):
    time.sleep(0.1 if os.environ["JOB_ATTEMPT"] in "12" and os.environ["JOB_ID"] != "1" else 0)
    report(*given, **named)
Reporter.report = slow
runpy.run_module("language_model.train", run_name="__main__")
"""
"""The training. The steps of attempts 1 and 2 are slow, so that events happen between them. Job 1 is always
fast.
"""
CONFIG = """
[scheduling]
capacity = 2
[scheduling.queues.default.preemption]
resize_period = 0.1
[algorithms.elastic-language-model]
{parameters}
framework = "pytorch"
elastic = {{min_instances = 1, max_restarts = 0}}
process.command = ["python", "-c", '''{program}''']
[process]
path = "{path}"
"""


def test_an_elastic_training_shrinks_and_grows_and_reaches_the_loss_of_one_process(
    forked_python: ForkedPython, server: Server
) -> None:
    fork_torchrun(server.folder / "bin")
    config = CONFIG.format(
        parameters=declared((*SMALL, *SAVED_AT_THE_NOTICE)),
        program=SLOWLY,
        path=f"{server.folder / 'bin'}:{forked_python.path}",
    )
    (server.folder / "config.toml").write_text(config + (server.folder / "config.toml").read_text())
    version = prepare(corpus.FILE.path().read_bytes(), str(server.folder / "storage"), "dialog").version
    with server.start() as client:
        alone = submit(client, version, 1)
        assert end_of(client, alone).status == pb.succeed, printed(client, alone)
        job = submit(client, version, 2)
        assert trains(client, job, attempt=1).ranks[1:], "it begins with two"
        other = client.submit("program", "dialog", version, parameters=HOLDS, expected=DAY)
        assert len(trains(client, job, attempt=2).ranks) == 1
        client.cancel(other)
        ended = end_of(client, job)
        assert ended.status == pb.succeed, (ended.diagnosis, printed(client, job))
        assert [len(ended.ranks), ended.attempt, ended.preemptions] == [2, 3, 0]
        stops = [move.preempted for move in ended.moves if move.preempted]
        assert stops == [
            f"Made smaller: job {other} starts with the capacity that this frees.",
            "Made larger: more instances are free.",
        ]
        assert not any(move.HasField("diagnosis") for move in ended.moves)
        [loss] = client.metrics(job, ["loss"])
        for attempt in (2, 3):
            log = printed(client, job, attempt)
            resumed = re.search(r"resuming from step (\d+)", log)
            assert resumed is not None, log
            last = max(point.step for point in loss.points if point.attempt == attempt - 1)
            assert int(resumed[1]) >= last - 1, "at most one step is lost"
        expected, found = (metrics_of(client.status(each).model_uri)["loss"] for each in (alone, job))
        assert found == pytest.approx(expected, abs=TOLERANCE)


def submit(client: TrainingClient, version: str, instances: int) -> int:
    parameters = {**SMALL, **SAVED_AT_THE_NOTICE}
    return client.submit(
        "elastic-language-model", "dialog", version, instances=instances, parameters=parameters, expected=DAY
    )


def trains(client: TrainingClient, job: int, attempt: int) -> pb.GetTrainingStatusResponse:
    return comes(client, job, lambda seen: seen.attempt == attempt and seen.progress.step > 0)


def printed(client: TrainingClient, job: int, attempt: int = 0) -> str:
    """Return the output of all instances. torchrun chooses the instance of rank 0."""
    return "".join(piece.text for piece in client.logs(job, attempt=attempt, all_ranks=True))

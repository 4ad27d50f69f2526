"""Every framework trains for real as plain processes, through the service."""

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.e2e.frameworks.cases import (
    ALGORITHMS,
    CASES,
    DATASET,
    Case,
    check,
    prepare_questions,
    train,
)
from tests.support.trainers.fork_fixtures import fork_torchrun
from tests.support.trainings import end_of
from tests.support.watching import all_run, comes, seen
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.server import Server
    from tests.support.trainers.forked_python import ForkedPython
    from training_service.client import TrainingClient
else:
    Server = ForkedPython = TrainingClient = Any

AS_PROCESSES = (
    *(case for case in CASES if case.algorithm != "horovod"),
    Case("horovod", 2, processes=2),
    Case("horovod-tensorflow", 2),
)
"""Horovod with several processes in an instance, and on both of its frameworks."""


@pytest.fixture
def version(server: Server, forked_python: ForkedPython) -> str:
    """The version of the data. The PyTorch processes of the trainings are forked, which torchrun does not
    notice.
    """
    write_config(server, forked_python)
    return prepare_questions(server.folder / "storage")


def write_config(server: Server, forked_python: ForkedPython, more: str = "") -> None:
    """Configure the examples and more algorithms."""
    path = f'[process]\npath = "{server.folder / "bin"}:{forked_python.path}"\n'
    (server.folder / "config.toml").write_text(f"{ALGORITHMS.read_text()}\n{path}{more}")


@pytest.mark.timeout(600, func_only=True)
@pytest.mark.parametrize("case", AS_PROCESSES, ids=str)
@pytest.mark.usefixtures("environment")
def test_a_framework_trains(server: Server, version: str, case: Case) -> None:
    fork_torchrun(server.folder / "bin")
    with server.start() as client:
        job = train(client, case, version)
        end_of(client, job)
        check(client, case, job)


def agent(server: Server, job: int, node: int) -> psutil.Process:
    """Return the torchrun process of an instance, the parent of its training processes."""
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except psutil.Error:
            continue
        ours = environment.get("HOME", "").startswith(str(server.folder)) and environment.get(
            "JOB_ID"
        ) == str(job)
        if ours and environment.get("PET_NODE_RANK") == str(node) and "RANK" not in environment:
            return process
    raise AssertionError(f"instance {node} of job {job} does not run")


def world_sizes(server: Server, job: int, ranks: int) -> dict[str, str]:
    """Wait until this number of training processes of the job run. Return WORLD_SIZE of each, by rank."""
    found: dict[str, str] = {}
    while len(found) < ranks:
        for process in server.ranks():
            with suppress(psutil.Error):
                environment = process.environ()
                is_of_job = environment.get("JOB_ID") == str(job)
                if is_of_job and {"RANK", "WORLD_SIZE"} <= environment.keys():
                    found[environment["RANK"]] = environment["WORLD_SIZE"]
        time.sleep(0.05)
    return found


def test_a_lost_worker_is_replaced_without_ending_the_attempt(server: Server, version: str) -> None:
    often = {"EPOCHS": "20", "CHECKPOINT_EVERY_STEPS": "20", "MIN_INSTANCES": "2"}
    case = Case("pytorch-elastic", 3, often)
    with server.start() as client:
        job = train(client, case, version)
        before = seen(client, job, step=1)
        # The processes choose rank 0 themselves, so the line may be in the log of any instance.
        lines = client.logs(job, all_ranks=True, follow=True)
        assert any("checkpoint of step" in piece.text for piece in lines)
        agent(server, job, 2).kill()
        after = seen(client, job, step=before.progress.step, restarts=1)
        assert [rank.restarts for rank in after.ranks] == [0, 0, 1]
        ended = end_of(client, job)
        assert (ended.status, ended.attempt) == (pb.succeed, 1), ended
        check(client, case, job)
        text = "".join(piece.text for piece in client.logs(job, all_ranks=True))
        assert "resuming from step" in text


def test_an_elastic_job_trains_with_as_many_instances_as_are_free(
    server: Server, forked_python: ForkedPython, version: str
) -> None:
    write_config(server, forked_python, '[algorithms.sleep.process]\ncommand = ["sleep", "infinity"]\n')
    fork_torchrun(server.folder / "bin")
    case = Case("pytorch-elastic", 4, {"EPOCHS": "10", "MIN_INSTANCES": "2"})
    with server.start("--capacity", "4") as client:
        others = client.submit("sleep", DATASET, version, instances=2)
        job = train(client, case, version)
        comes(client, job, all_run)
        assert world_sizes(server, job, 2) == {"0": "2", "1": "2"}
        status = seen(client, job, step=1)
        assert (status.attempt, len(status.ranks)) == (1, 2)
        client.cancel(others)  # the attempt continues with its original settings
        ended = end_of(client, job)
        assert (ended.status, ended.attempt, len(ended.ranks)) == (pb.succeed, 1, 2), ended

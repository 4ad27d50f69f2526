"""Logs of real processes: followed across kills of the service, and read after a loss of its files."""

import json
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.support.patience import PATIENCE
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub

if TYPE_CHECKING:
    from tests.support.server import Server
    from training_service.client import TrainingClient
else:
    Server = TrainingClient = Any

COUNT = 60
PROGRAM = (
    "import os, time\n"
    f"for n in range({COUNT}):\n"
    "    print('rank', os.environ['RANK'], 'line', n); time.sleep(0.1)"
)
EXPECTED = {rank: [f"rank {rank} line {n}" for n in range(COUNT)] for rank in range(2)}


def counting(client: TrainingClient) -> int:
    return client.submit("count", "1", "v1", instances=2)


def configured(server: Server) -> None:
    with (server.folder / "config.toml").open("a") as config:
        command = json.dumps(["python", "-c", PROGRAM])
        config.write(f"[algorithms.count]\nprocess.command = {command}\n")


def lines_of(chunks: Iterator[pb.GetTrainingLogsResponse]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {0: [], 1: []}
    for chunk in chunks:
        found[chunk.rank] += chunk.text.splitlines()
    return found


def test_a_follower_loses_no_line_and_gets_none_twice_when_the_service_is_killed(server: Server) -> None:
    configured(server)
    with server.start() as client:
        job = counting(client)
        followed: dict[int, list[str]] = {}
        has_begun = threading.Event()

        def follow() -> None:
            chunks = client.logs(job, follow=True, all_ranks=True)
            first = next(chunks)
            has_begun.set()
            followed.update(lines_of(chunks))
            followed[first.rank] = [*first.text.splitlines(), *followed[first.rank]]

        following = threading.Thread(target=follow)
        following.start()
        assert has_begun.wait(PATIENCE)
        for _ in range(2):
            assert server.end(signal.SIGKILL) == -signal.SIGKILL
            server.start().close()
        following.join(PATIENCE)
        assert followed == EXPECTED
        assert client.wait(job).status == pb.succeed


def test_a_log_is_read_from_storage_when_the_files_of_the_machine_are_gone(server: Server) -> None:
    configured(server)
    with server.start() as client:
        job = counting(client)
        assert client.wait(job, timeout=PATIENCE).status == pb.succeed
    server.end(signal.SIGTERM)
    shutil.rmtree(server.folder / "groups")
    with server.start() as client:
        chunks = list(client.logs(job, all_ranks=True, timestamps=True))
        lines = "".join(chunk.text for chunk in chunks).splitlines()
        assert lines == sorted(lines)
        assert len(lines) == 2 * COUNT
        assert lines_of(client.logs(job, all_ranks=True)) == EXPECTED


TALKING = "print(''.join('line %d of many\\n' % n for n in range(500_000)))"
"""Prints more than a connection can buffer, so the service waits for a reader that does not read."""


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("all_ranks", [False, True])
def test_readers_that_disconnect_cause_no_traceback_in_the_service_log(
    server: Server, follow: bool, all_ranks: bool
) -> None:
    with (server.folder / "config.toml").open("a") as config:
        command = json.dumps(["python", "-c", TALKING])
        config.write(f"[algorithms.count]\nprocess.command = {command}\n")
    with server.start() as client:
        job = counting(client)
        client.wait(job, timeout=PATIENCE)
        request = pb.GetTrainingLogsRequest(job_id=job, follow=follow, all_ranks=all_ranks)
        with grpc.insecure_channel(server.address) as channel:
            stream = TrainingServiceStub(channel).GetTrainingLogs(request)
            next(iter(stream))
            time.sleep(0.5)  # without further reads, until the service can send no more
            stream.cancel()
        deadline = time.monotonic() + PATIENCE
        while "GetTrainingLogs CANCELLED" not in server.log.read_text():
            assert time.monotonic() < deadline, server.log.read_text()
            time.sleep(0.05)
    assert server.end(signal.SIGTERM) == 0
    said = server.log.read_text()
    assert "GetTrainingLogs CANCELLED" in said
    assert "Traceback" not in said

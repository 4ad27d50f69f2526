"""The service and its ranks are killed: nothing is lost, doubled or left behind."""

import signal
from collections.abc import Mapping
from datetime import UTC, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from tests.support.patience import PATIENCE
from training_service._generated import training_service_pb2 as pb
from training_service.client import RetryPolicy

if TYPE_CHECKING:
    from tests.support.server import Server
    from training_service.client import TrainingClient
else:
    Server = TrainingClient = Any

FOREVER = {"RUN_SECONDS": "forever", "PRINT": "up"}


def submit(
    client: TrainingClient,
    parameters: Mapping[str, str] | None = None,
    *,
    instances: int = 1,
    attempts: int = 1,
    backoff: timedelta = timedelta(seconds=0.1),
) -> int:
    retry_policy = RetryPolicy(max_attempts=attempts)
    retry_policy.backoff.FromTimedelta(backoff)
    return client.submit(
        "program",
        "1",
        "v1",
        instances=instances,
        parameters=parameters or {},
        retry_policy=retry_policy,
    )


def reaches(client: TrainingClient, job_id: int, status: int) -> pb.GetTrainingStatusResponse:
    for seen in client.watch(job_id):
        if seen.status == status:
            return seen
    raise AssertionError(f"job {job_id} ended without meeting the condition: {client.status(job_id)}")


def test_a_killed_service_adopts_its_groups_after_a_restart(server: Server) -> None:
    with server.start() as client:
        job = submit(client, FOREVER, instances=3)
        reaches(client, job, pb.running)
    before = [server.rank(job, rank) for rank in range(3)]
    assert server.end(signal.SIGKILL) == -signal.SIGKILL
    assert all(process.is_running() for process in before)
    with server.start() as client:
        assert client.status(job).status == pb.running
        assert [server.rank(job, rank) for rank in range(3)] == before
        client.cancel(job)
        ended = client.wait(job)
        assert ended.status == pb.cancelled
        assert ended.attempt == 1
    assert not any(process.is_running() for process in before)


def test_a_job_that_ends_during_downtime_keeps_its_outcome(server: Server, tmp_path: Path) -> None:
    is_down = tmp_path / "is-down"
    with server.start() as client:
        good = submit(client, {"UNTIL_FILE": str(is_down)})
        bad = submit(client, {"UNTIL_FILE": str(is_down), "EXIT_CODE": "3"})
        for job in (good, bad):
            reaches(client, job, pb.running)
        processes = [server.rank(job, 0) for job in (good, bad)]
    server.end(signal.SIGKILL)
    is_down.touch()
    for process in processes:
        process.wait()
    with server.start() as client:
        assert client.wait(good).status == pb.succeed
        failed = client.wait(bad)
        assert (failed.status, failed.diagnosis.category) == (pb.failure, "crashed")
        assert failed.ranks[0].exit_code == 3


def test_every_acknowledged_job_survives_a_kill_and_keeps_its_place(server: Server) -> None:
    with server.start("--capacity", "1") as client:
        running = submit(client, FOREVER)
        waiting = [submit(client) for _ in range(20)]
        reaches(client, running, pb.running)
    server.end(signal.SIGKILL)
    with server.start("--capacity", "1") as client:
        assert [client.status(job).positionInQueue for job in waiting] == list(range(20))
        client.cancel(running)
        assert client.wait(waiting[-1], timeout=PATIENCE).status == pb.succeed
        assert [client.status(job).attempt for job in waiting] == [1] * 20
        assert submit(client) == waiting[-1] + 1


def test_an_orderly_stop_leaves_groups_running(server: Server) -> None:
    with server.start() as client:
        job = submit(client, FOREVER)
        reaches(client, job, pb.running)
        before = server.rank(job, 0)
    assert server.end(signal.SIGTERM) == 0
    with server.start() as client:
        assert client.status(job).status == pb.running
        assert server.rank(job, 0) == before


def test_a_watch_continues_after_a_restart(server: Server) -> None:
    with server.start() as client:
        job = submit(client, FOREVER)
        seen = client.watch(job)
        while next(seen).status != pb.running:
            pass
        server.end(signal.SIGTERM)
        server.start().close()
        client.cancel(job)
        assert [status.status for status in seen][-1] == pb.cancelled


def test_a_rank_killed_by_hand_fails_the_job_and_stops_the_others(server: Server) -> None:
    with server.start() as client:
        job = submit(client, FOREVER, instances=3)
        reaches(client, job, pb.running)
        others = [server.rank(job, rank) for rank in (0, 2)]
        server.rank(job, 1).kill()
        failed = client.wait(job)
        assert (failed.diagnosis.category, failed.diagnosis.rank) == ("killed", 1)
        assert [rank.phase for rank in failed.ranks] == [
            pb.RANK_PHASE_STOPPED,
            pb.RANK_PHASE_FAILED,
            pb.RANK_PHASE_STOPPED,
        ]
        assert not any(process.is_running() for process in others)


def test_a_group_with_a_rank_killed_by_hand_is_restarted_as_a_whole(server: Server) -> None:
    with server.start() as client:
        job = submit(client, FOREVER, instances=3, attempts=2)
        reaches(client, job, pb.running)
        assert next(iter(client.logs(job, follow=True))).text == "up\n"  # a rank runs before it has printed
        first = [server.rank(job, rank) for rank in range(3)]
        first[1].kill()
        again = next(seen for seen in client.watch(job) if (seen.attempt, seen.status) == (2, pb.running))
        assert not any(process.is_running() for process in first)
        assert [move.diagnosis.category for move in again.moves if move.HasField("diagnosis")] == ["killed"]
        second = [server.rank(job, rank) for rank in range(3)]
        assert [process.environ()["JOB_ATTEMPT"] for process in second] == ["2"] * 3
        assert "".join(piece.text for piece in client.logs(job, attempt=1)) == "up\n"
        second[2].kill()
        failed = client.wait(job)
        assert (failed.status, failed.attempt, failed.diagnosis.rank) == (pb.failure, 2, 2)


def test_a_backoff_is_not_cut_short_by_a_kill(server: Server) -> None:
    backoff = timedelta(seconds=5)  # longer than the restart takes, on a machine that is not busy
    with server.start() as client:
        job = submit(client, FOREVER, attempts=2, backoff=backoff)
        reaches(client, job, pb.running)
        server.rank(job, 0).kill()
        next(seen for seen in client.watch(job) if any(move.HasField("diagnosis") for move in seen.moves))
    server.end(signal.SIGKILL)
    with server.start() as client:
        again = next(seen for seen in client.watch(job) if (seen.attempt, seen.status) == (2, pb.running))
        # The history has both ends of the backoff, even if it was over before the restart.
        _, failed, due = (move.at.ToDatetime(UTC) for move in again.moves if move.status == pb.queuing)
        assert due >= failed + backoff
        client.cancel(job)
        assert client.wait(job).status == pb.cancelled


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_service_that_waits_for_running_calls(server: Server, number: int) -> None:
    server.start("-s", "server.shutdown_seconds=300").close()
    assert server.process is not None
    with grpc.insecure_channel(server.address) as channel:
        watch = HealthStub(channel).Watch(HealthCheckRequest())
        assert next(watch).status == HealthCheckResponse.SERVING
        server.process.send_signal(signal.SIGTERM)
        assert next(watch).status == HealthCheckResponse.NOT_SERVING
        assert server.end(number) == 128 + number

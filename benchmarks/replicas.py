"""The time without a leader: from the end of the leading replica until another replica has run a job.

Two replicas share one Redis, with the default lease of 5 s and the process backend. The leader gets SIGKILL
or SIGTERM, and at the same moment, a job is submitted to the other replica. The result is the time until the
job has succeeded, minus the time that the same job takes with a leader. Then a new replica is started in
place of the ended one.
"""

import signal
import statistics
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.redis_store import running
from benchmarks.support import Row, Server, request, run_alone, service, workspace
from tests.support.redis_server import MISSING, RedisServer, find_server
from training_service._generated import training_service_pb2 as pb

_HOLDER = ("HGET", "{training-service}:leader", "holder")


def measure(quick: bool) -> list[Row]:
    if find_server() is None:
        return [Row("replicas", f"not measured: {MISSING}")]
    rounds = 2 if quick else 7
    with workspace() as folder, running(folder) as redis:
        killed = _takeovers(folder, redis, signal.SIGKILL, rounds)
        stopped = _takeovers(folder, redis, signal.SIGTERM, rounds)
    return [
        _row("killed", killed, "< 10 s", max(killed) < 10),
        _row("stopped in good order", stopped, "< 1 s", max(stopped) < 1),
    ]


def _row(how: str, seconds: list[float], target: str, met: bool) -> Row:
    return Row(
        f"replicas: leader {how} → another leads",
        f"{statistics.median(seconds):.2f} s (longest of {len(seconds)}: {max(seconds):.2f} s)",
        target=target,
        met=met,
    )


def _takeovers(folder: Path, redis: RedisServer, number: signal.Signals, rounds: int) -> list[float]:
    with ExitStack() as stack:

        def start() -> Server:
            return stack.enter_context(service(folder, command=("true",), capacity=4, store__url=redis.url))

        servers = [start(), start()]
        found: list[float] = []
        while len(found) < rounds:
            while not (holder := redis.ask(*_HOLDER)):
                time.sleep(0.05)
            leader = next(each for each in servers if holder.endswith(f"/{each.pid}"))
            (other,) = [each for each in servers if each is not leader]
            usual = _seconds_of_a_job(other)
            leader.signal(number)
            found.append(max(0.0, _seconds_of_a_job(other) - usual))
            servers = [other, start()]
        return found


def _seconds_of_a_job(server: Server) -> float:
    begun = time.monotonic()
    with server.stub() as stub:
        job = stub.Train(request()).job_id
        *_, last = stub.WatchTraining(pb.WatchTrainingRequest(job_id=job))
    if last.status != pb.succeed:
        raise RuntimeError(f"the job has not succeeded: {last}")
    return time.monotonic() - begun


if __name__ == "__main__":
    run_alone(measure)

"""Runs 200 short jobs while a random replica is killed every few seconds. No job may be lost or run twice.

Two replicas share one Redis, with the default lease of 5 s. Each rank writes a line to a file when it begins
and when it ends. Every job must succeed in its first attempt, and every rank must run exactly once.
"""

import random
import signal
import time
from collections import Counter
from contextlib import ExitStack

from benchmarks.redis_store import running
from benchmarks.support import Row, Server, request, run_alone, service, workspace
from tests.support.redis_server import MISSING, find_server
from training_service._generated import training_service_pb2 as pb

_PROGRAM = 'echo "$JOB_ID $JOB_ATTEMPT $RANK $1" >> "$RECORD"'
_COMMAND = ("sh", "-c", f'note() {{ {_PROGRAM}; }}; note began; sleep "$SECONDS_TO_RUN"; note ended')


def measure(quick: bool) -> list[Row]:
    if find_server() is None:
        return [Row("kills", f"not measured: {MISSING}")]
    count = 40 if quick else 200
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    with workspace() as folder, running(folder) as redis, ExitStack() as stack:

        def start() -> Server:
            return stack.enter_context(service(folder, command=_COMMAND, capacity=8, store__url=redis.url))

        record, begun, kills = folder / "ranks.txt", time.monotonic(), 0
        servers = [start(), start()]
        with servers[0].stub() as stub:
            wanted = {
                stub.Train(
                    request(RECORD=str(record), SECONDS_TO_RUN="0.5", PARALLEL_INSTANCES=str(1 + n % 2))
                ).job_id: 1 + n % 2
                for n in range(count)
            }
        while _unfinished(servers[0]):
            time.sleep(chance.uniform(1, 7))
            killed = chance.choice(servers)
            killed.signal(signal.SIGKILL)
            kills += 1
            servers = [next(each for each in servers if each is not killed), start()]
        seconds = time.monotonic() - begun
        with servers[0].stub() as stub:
            listed = stub.ListTrainingJobs(pb.ListTrainingJobsRequest(page_size=1000)).jobs
        good = sum(job.status == pb.succeed and job.attempt == 1 for job in listed)
        ran = Counter(tuple(line.split()) for line in record.read_text().splitlines())
    expected: Counter[tuple[str, ...]] = Counter(
        (str(job), "1", str(rank), what)
        for job, instances in wanted.items()
        for rank in range(instances)
        for what in ("began", "ended")
    )
    return [
        Row(
            f"kills: jobs that succeeded, {kills} kills in {seconds:.0f} s (seed {seed})",
            f"{good} of {count}",
            target="all",
            met=good == count == len(listed),
        ),
        Row(
            "kills: ranks that did not run exactly once",
            f"{len(set((expected - ran) + (ran - expected)))}",
            target="0",
            met=ran == expected,
        ),
    ]


def _unfinished(server: Server) -> bool:
    going_on = [pb.queuing, pb.launch, pb.running]
    with server.stub() as stub:
        return bool(stub.ListTrainingJobs(pb.ListTrainingJobsRequest(statuses=going_on, page_size=1)).jobs)


if __name__ == "__main__":
    run_alone(measure)

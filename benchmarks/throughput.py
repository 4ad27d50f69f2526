"""Short jobs: how many jobs that run `true` are completed per second, as processes, at a capacity of 50.

The time runs from the first Train, with 64 calls in flight, until the last job has succeeded.

The baseline is a loop that starts and reaps the same number of supervisors, 50 at a time. In the service,
too, every rank runs under a supervisor, which writes the rank's log and files about the rank. So a slow disk
slows both the service and the baseline. Only the service has the queue, stores each change of a job's state
durably, makes the groups' folders, and moves the logs to storage.
"""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import grpc
import psutil

from benchmarks.support import (
    IN_FLIGHT,
    Row,
    Server,
    interleaved,
    ratio,
    request,
    run_alone,
    service,
    workspace,
)
from job_tracker.backends.process.files import RankFolder
from job_tracker.backends.process.rank import spawn_supervisor
from job_tracker.files.untrusted import Place
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub

CAPACITY = 50
_PROGRAM = "true"
_TARGET = 0.5
_LOOK_SECONDS = 0.05
_MOST_LOG = 100 << 20
_UNFINISHED = [pb.queuing, pb.launch, pb.running]


def measure(quick: bool) -> list[Row]:
    count = 200 if quick else 2000
    with (
        workspace() as folder,
        service(folder / "service", command=[_PROGRAM], capacity=CAPACITY) as server,
    ):
        cpu: list[float] = []
        rounds = iter(range(100))

        def ours() -> float:
            before = _cpu_seconds(server)
            rate = asyncio.run(_jobs_per_second(server, count))
            cpu.append((_cpu_seconds(server) - before) / count)
            return rate

        def theirs() -> float:
            return _supervisors_per_second(folder / f"bare-{next(rounds)}", count)

        rates, bare = interleaved(1 if quick else 2, ours, theirs)
    found = ratio(rates, bare)
    return [
        Row(
            f"throughput: jobs/s, {count:,} of {_PROGRAM} at capacity {CAPACITY}, against bare supervisors",
            f"{sum(rates) / len(rates):.0f}/s",
            f"{sum(bare) / len(bare):.0f}/s",
            f"{found:.2f}",
            f"≥ {_TARGET}",
            found >= _TARGET,
        ),
        Row("throughput: … CPU of the service a job", f"{1000 * sum(cpu) / len(cpu):.1f} ms"),
    ]


async def _jobs_per_second(server: Server, count: int) -> float:
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub: Any = TrainingServiceStub(channel)  # the generated type is for synchronous channels
        begun, left, wanted = time.monotonic(), iter(range(count)), set()

        async def submit() -> None:
            for _ in left:
                wanted.add((await stub.Train(request())).job_id)

        await asyncio.gather(*(submit() for _ in range(IN_FLIGHT)))
        unfinished = pb.ListTrainingJobsRequest(statuses=_UNFINISHED, page_size=1)
        while (await stub.ListTrainingJobs(unfinished)).jobs:
            await asyncio.sleep(_LOOK_SECONDS)
        seconds = time.monotonic() - begun
        good = 0
        page = pb.ListTrainingJobsRequest(page_size=1000)
        while good < count:
            answer = await stub.ListTrainingJobs(page)
            good += sum(job.job_id in wanted and job.status == pb.succeed for job in answer.jobs)
            if not answer.next_page_token:
                break
            page.page_token = answer.next_page_token
    if good != count:
        raise RuntimeError(f"{good} of {count} jobs succeeded")
    return count / seconds


def _supervisors_per_second(folder: Path, count: int) -> float:
    begun, running, started = time.monotonic(), 0, 0
    ends: list[int] = []
    while started < count or running:
        if started < count and running < CAPACITY:
            ends.append(_start(folder / str(started)))
            started, running = started + 1, running + 1
        else:
            os.wait()
            running -= 1
    seconds = time.monotonic() - begun
    for end in ends:
        os.close(end)
    bad = [
        file for n in range(count) if json.loads((file := folder / str(n) / "exit.json").read_text())["code"]
    ]
    if bad:
        raise RuntimeError(f"{len(bad)} ranks failed; the first record: {bad[0]}")
    return count / seconds


def _cpu_seconds(server: Server) -> float:
    times = psutil.Process(server.pid).cpu_times()
    return float(times.user + times.system)


def _start(path: Path) -> int:
    """Start the supervisor of a rank in the folder `path`.

    Return the read end of the pipe in which the supervisor reports a failure to start.
    """
    (path / "work").mkdir(parents=True)
    fields = ("", str(_MOST_LOG), "1", _PROGRAM, f"PATH={os.environ['PATH']}")
    (path / "command").write_bytes(b"".join(os.fsencode(field) + b"\0" for field in fields))
    outlet, inlet = os.pipe()
    try:
        spawn_supervisor(RankFolder(Place(path)), inlet, Place(path, ("supervisors.log",)))
    finally:
        os.close(inlet)
    return outlet


if __name__ == "__main__":
    run_alone(measure)

"""The cost of an idle service, and the time until a restarted service is ready.

Idle: CPU time and memory over some seconds, with 100,000 finished jobs in the store and none running. Ready:
the time from the restart of the service until it answers a call, after a kill -9 with 10,000 jobs queued and
1,000 running. The running jobs are real processes, and one of them is killed before the restart. The service
must find each of the others again, and start none twice.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.support import Filling, Row, fill, request, run_alone, service, workspace
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub

_SETTLE_SECONDS = 5.0
_TOGETHER = 100
_FOR_EVER = ("sleep", "infinity")


def measure(quick: bool) -> list[Row]:
    return [*_idle(10_000 if quick else 100_000, 10.0 if quick else 60.0), *ready(100 if quick else 1_000)]


def _idle(finished: int, seconds: float) -> list[Row]:
    with workspace() as folder:
        fill(folder, Filling(finished=finished, holder=False))
        with service(folder) as server, server.stub() as stub:
            stub.GetTrainingStatus(pb.GetTrainingStatusRequest(job_id=1))
            time.sleep(_SETTLE_SECONDS)
            process = psutil.Process(server.pid)
            before = process.cpu_times()
            time.sleep(seconds)
            after = process.cpu_times()
            memory = process.memory_info().rss / 1e6
    share = (after.user + after.system - before.user - before.system) / seconds
    name = f"idle with {finished:,} finished jobs"
    return [
        Row(f"{name}: CPU", f"{share:.2%} of a core", target="< 1 %", met=share < 0.01),
        Row(f"{name}: memory", f"{memory:.0f} MB", target="< 150 MB", met=memory < 150),
    ]


def ready(running: int, name: str = "ready", *, within: float = 1, **settings: str) -> list[Row]:
    """Return rows with the time until a service answers after a kill -9. The target is `within` seconds."""
    queued = 10 * running
    # With a second attempt, the job whose process is killed would be queued again.
    settings = {"retry__max_attempts": "1", **settings}
    with workspace() as folder:
        with (
            service(folder, command=_FOR_EVER, capacity=running, **settings) as server,
            server.stub() as stub,
        ):
            job_ids = [answer.job_id for answer in each_of(stub.Train, [request()] * (running + queued))]
            _until(lambda: len(_running(stub)) == running)
            os.kill(server.pid, signal.SIGKILL)
        started = _processes_of(folder)
        killed_job, killed = next(iter(started.items()))
        killed.kill()
        begun = time.monotonic()
        with (
            service(folder, command=_FOR_EVER, capacity=running, **settings) as server,
            server.stub() as stub,
        ):
            stub.GetTrainingStatus(pb.GetTrainingStatusRequest(job_id=killed_job))
            answered = time.monotonic() - begun
            for status in stub.WatchTraining(pb.WatchTrainingRequest(job_id=killed_job)):
                last = status
            reported = time.monotonic() - begun
            if last.status != pb.failure:
                raise RuntimeError(f"the job whose process was killed has not failed: {last}")
            _until(lambda: len(_running(stub)) == running)
            found = _processes_of(folder)
            again = sum(found.get(job) == process for job, process in started.items())
            # Jobs are cancelled from the last to the first, so that no queued job is started meanwhile.
            each_of(stub.CancelTraining, [pb.CancelTrainingRequest(job_id=i) for i in reversed(job_ids)])
            _until(lambda: not _running(stub), seconds=300)
    name = f"{name}, {queued:,} queued and {running:,} running"
    return [
        Row(
            f"{name}: start → first answer",
            f"{answered:.2f} s",
            target=f"< {within:g} s",
            met=answered < within,
        ),
        Row(f"{name}: … → jobs that ended meanwhile are reported", f"{reported:.2f} s"),
        Row(
            f"{name}: processes found again",
            f"{again:,} of {running - 1:,}",
            target="all",
            met=again == running - 1,
        ),
    ]


def each_of(call: Any, requests: Iterable[Any]) -> list[Any]:
    """Make the call for each request, and return all answers.

    At most 100 calls are in flight at a time.
    """
    left, answers = list(requests), []
    while left:
        batch, left = left[:_TOGETHER], left[_TOGETHER:]
        answers += [future.result() for future in [call.future(each) for each in batch]]
    return answers


def _running(stub: TrainingServiceStub) -> set[int]:
    jobs = stub.ListTrainingJobs(pb.ListTrainingJobsRequest(statuses=[pb.running], page_size=1000)).jobs
    return {job.job_id for job in jobs}


def _processes_of(data_dir: Path) -> dict[int, psutil.Process]:
    """Return the running processes of the jobs of the service with the data folder `data_dir`, by job id."""
    found = {}
    for process in psutil.process_iter():
        try:
            if process.name() == _FOR_EVER[0] and process.cwd().startswith(str(data_dir)):
                found[int(process.environ()["JOB_ID"])] = process
        except psutil.Error:
            continue
    return found


def _until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.2)


if __name__ == "__main__":
    run_alone(measure)

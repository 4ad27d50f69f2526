"""How soon and how rightly a rank that stalls is found, and what the watch costs.

Groups of four train in step, with a deadline for progress of 3 s. In each, a random rank freezes (SIGSTOP) or
leaves out a meeting, with and without knowledge of the kit that the others wait; others stay healthy, with
uneven steps, long evaluations and long saves. `--count N` sets how many of each kind.

And: the cost of a call of `step`, and the CPU time of a service that 1,000 ranks of 10 jobs report to.
"""

import random
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, timedelta
from pathlib import Path

import grpc
import psutil
from trainer_kit.steps import Steps

from benchmarks import stalling_rank
from benchmarks.reports import running_jobs
from benchmarks.support import Row, Server, request, run_alone, service, workspace
from training_service._generated import training_reporter_pb2 as reports_pb
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_reporter_pb2_grpc import TrainingReporterStub

_KINDS = ("frozen", "left-out", "unseen")
_DEADLINE_SECONDS = 3.0
_RANKS, _AT_ONCE = 4, 2
_GIVE_UP_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one job."""

    kind: str
    found: bool
    seconds: float = 0.0
    """From the stall until the service had decided to stop the group."""
    right: bool = False
    """Whether the right rank was named, and no other."""
    stacks: bool = False
    """Whether the log of each rank that could run has its stacks."""


def measure(quick: bool) -> list[Row]:
    count = int(sys.argv[sys.argv.index("--count") + 1]) if "--count" in sys.argv else 2 if quick else 20
    rows = [_step_call()]
    program = [sys.executable, str(Path(stalling_rank.__file__))]
    with workspace() as folder, service(folder, command=program, capacity=_RANKS * _AT_ONCE) as server:
        kinds = [kind for kind in (*_KINDS, "healthy") for _ in range(count)]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            outcomes = list(pool.map(lambda each: _one(server, folder, *each), enumerate(kinds)))
    for kind in _KINDS:
        rows += _rows(kind, [outcome for outcome in outcomes if outcome.kind == kind])
    alarms = sum(outcome.found for outcome in outcomes if outcome.kind == "healthy")
    rows.append(Row("stalls: false alarms", f"{alarms} of {count} healthy jobs", target="0", met=alarms == 0))
    rows.append(_slow(count))
    rows.append(_cost(quick))
    return rows


def _rows(kind: str, outcomes: Sequence[Outcome]) -> list[Row]:
    found = sorted(outcome.seconds for outcome in outcomes if outcome.found)
    right = sum(outcome.right for outcome in outcomes)
    kept = sum(outcome.stacks for outcome in outcomes)
    name, count = f"stalls: {kind} rank", len(outcomes)
    times = f"median {statistics.median(found):.1f} s, longest {found[-1]:.1f} s" if found else "-"
    return [
        Row(f"{name}, found", f"{len(found)} of {count}; {times}", target="all", met=len(found) == count),
        Row(f"{name}, named", f"{right} of {count}", target="≥ 95 %", met=right >= 0.95 * count),
        Row(f"{name}, stacks of live ranks kept", f"{kept} of {count}", target="all", met=kept == count),
    ]


def _one(server: Server, folder: Path, number: int, kind: str) -> Outcome:
    record = folder / f"record-{number}"
    record.mkdir()
    victim, at = random.randrange(_RANKS), random.randrange(4, 12)
    fault = kind if kind == "healthy" else f"{kind}:{victim}:{at}"
    train = request(RECORD=str(record), FAULT=fault, PARALLEL_INSTANCES=str(_RANKS))
    train.deadlines.progress.FromTimedelta(timedelta(seconds=_DEADLINE_SECONDS))
    train.retry_policy.max_attempts = 1
    with server.stub() as stub:
        job = stub.Train(train).job_id
        gives_up = time.monotonic() + _GIVE_UP_SECONDS
        while True:
            status = stub.GetTrainingStatus(pb.GetTrainingStatusRequest(job_id=job))
            if status.ending or status.status in (pb.failure, pb.succeed) or time.monotonic() > gives_up:
                break
            time.sleep(0.05)
        seen = time.time()
        while status.status == pb.running and time.monotonic() < gives_up:
            time.sleep(0.1)
            status = stub.GetTrainingStatus(pb.GetTrainingStatusRequest(job_id=job))
        logs = [
            "".join(
                piece.text for piece in stub.GetTrainingLogs(pb.GetTrainingLogsRequest(job_id=job, rank=rank))
            )
            for rank in range(_RANKS)
        ]
    found = status.diagnosis.category == "stalled"
    if kind == "healthy" or not found:
        return Outcome(kind, found)
    live = [rank for rank in range(_RANKS) if kind != "frozen" or rank != victim]
    return Outcome(
        kind,
        found,
        seconds=seen - float((record / "stalled").read_text()),
        right=status.diagnosis.HasField("rank") and status.diagnosis.rank == victim,
        stacks=all("Thread MainThread" in logs[rank] for rank in live),
    )


def _slow(count: int) -> Row:
    """The steps from which a rank works 30 % longer until it is named as slow."""
    program, wrong = [sys.executable, str(Path(stalling_rank.__file__))], 0
    after: list[float] = []
    with workspace() as folder, service(folder, command=program, capacity=_RANKS) as server:
        for number in range(count):
            record = folder / f"record-{number}"
            record.mkdir()
            victim = random.randrange(_RANKS)
            train = request(RECORD=str(record), FAULT=f"slow:{victim}:20", PARALLEL_INSTANCES=str(_RANKS))
            train.deadlines.progress.FromTimedelta(timedelta(seconds=_DEADLINE_SECONDS))
            with server.stub() as stub:
                job = stub.Train(train).job_id
                watch = stub.WatchTraining(pb.WatchTrainingRequest(job_id=job), timeout=_GIVE_UP_SECONDS)
                for status in watch:
                    named = [rank for rank in status.ranks if rank.pace.HasField("slow_since")]
                    if named:
                        break
                mark = record / "stalled"
                if [rank.rank for rank in named] == [victim] and mark.exists():
                    since = named[0].pace.slow_since.ToDatetime(UTC).timestamp()
                    seconds = since - float(mark.read_text())
                    after.append(seconds / (1.3 * stalling_rank.STEP_SECONDS))
                else:
                    wrong += 1
                stub.CancelTraining(pb.CancelTrainingRequest(job_id=job))
    return Row(
        "stalls: rank 30 % slower, named after",
        f"median {statistics.median(after or [0]):.0f}, at most {max(after, default=0):.0f} steps; "
        f"wrong: {wrong} of {count}",
        target="≤ 20 steps",
        met=max(after, default=0) <= 20 and not wrong,
    )


def _step_call() -> Row:
    steps, count = Steps(), 100_000
    began = time.perf_counter()
    for number in range(count):
        steps.step(number)
    each = (time.perf_counter() - began) / count * 1e6
    return Row("stalls: a call of step", f"{each:.2f} µs", target="≤ 20 µs", met=each <= 20)


def _cost(quick: bool) -> Row:
    """The CPU time of a service while 1,000 ranks report, each at the pause that it is given."""
    jobs, ranks, seconds = 10, 100, 20.0 if quick else 60.0
    with workspace() as folder, service(folder, capacity=jobs * ranks) as server:
        tokens = running_jobs(server, folder, jobs, PARALLEL_INSTANCES=str(ranks))
        with grpc.insecure_channel(server.address) as channel:
            stub = TrainingReporterStub(channel)
            ends = threading.Event()
            calls = [0] * len(tokens)

            def report(job: int) -> None:
                due = [time.monotonic() + random.uniform(0, 5) for _ in range(ranks)]
                step = 0
                while not ends.is_set():
                    rank = min(range(ranks), key=due.__getitem__)
                    if ends.wait(max(0.0, due[rank] - time.monotonic())):
                        return
                    step += 1
                    answer = stub.Report(
                        reports_pb.ReportRequest(
                            rank=reports_pb.RankProgress(
                                rank=rank, step=step, longest_step=1, step_seconds=1, place=step
                            )
                        ),
                        metadata=(("authorization", f"Bearer {tokens[job]}"),),
                    )
                    due[rank] = time.monotonic() + answer.quiet_pause.ToTimedelta().total_seconds()
                    calls[job] += 1

            process = psutil.Process(server.pid)
            idle = _used(process, seconds / 2)
            threads = [threading.Thread(target=report, args=(job,)) for job in range(jobs)]
            for thread in threads:
                thread.start()
            time.sleep(10)
            called, began = sum(calls), time.monotonic()
            used = _used(process, seconds)
            rate = (sum(calls) - called) / (time.monotonic() - began)
            ends.set()
            for thread in threads:
                thread.join()
    return Row(
        "stalls: service with 1,000 ranks that report",
        f"{used:.1%} of a core, {idle:.1%} without reports; {rate:.0f} reports/s",
        target="≤ 5 %",
        met=used <= 0.05,
    )


def _used(process: psutil.Process, seconds: float) -> float:
    """The cores that the process uses in this time."""
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after = process.cpu_times()
    return (after.user + after.system - before.user - before.system) / (time.monotonic() - began)


if __name__ == "__main__":
    run_alone(measure)

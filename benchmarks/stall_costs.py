"""The costs of finding stalls: a call of `step`, the hook of DDP, the reports of a rank, and the service."""

import os
import random
import statistics
import subprocess
import sys
import threading
import time

import grpc
import psutil
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.nn.parallel import DistributedDataParallel
from trainer_kit import group as groups
from trainer_kit.steps import Steps

from benchmarks import ddp_rank
from benchmarks.reports import running_jobs
from benchmarks.support import Row, interleaved, service, workspace
from training_service._generated import training_reporter_pb2 as reports_pb
from training_service._generated.training_reporter_pb2_grpc import TrainingReporterStub

_STEP_SECONDS = 0.05
_SETTLE_SECONDS = 5.0
_FIRST_SECONDS, _LONGEST_PAUSE = 5.0, 20.0
_RANK = """
import sys, time
from types import SimpleNamespace
from trainer_kit import steps
from trainer_kit.progress import reporting
def train(ends):
    while (left := ends - time.monotonic()) > 0:
        time.sleep(min(left, {step}))
        yield
def used(ends, is_watched):
    for number, _ in enumerate(train(time.monotonic() + {settle}), start=1):
        steps.OF_PROCESS.step(number) if is_watched else None
    before = time.process_time()
    for number, _ in enumerate(train(time.monotonic() + ends), start=number + 1):
        steps.OF_PROCESS.step(number) if is_watched else None
    return time.process_time() - before
if sys.argv[1] == "watched":
    with reporting(SimpleNamespace(rank=1, is_master=False)):
        print(used({seconds}, True))
else:
    print(used({seconds}, False))
"""


def of_step() -> Row:
    """Return a row with the time of a call of `step`."""
    steps, count = Steps(), 100_000
    began = time.perf_counter()
    for number in range(count):
        steps.step(number)
    each = (time.perf_counter() - began) / count * 1e6
    return Row("stalls: a call of step", f"{each:.2f} µs", target="≤ 20 µs", met=each <= 20)


def of_hook() -> Row:
    """Return a row with the CPU time that a hook adds to a step of DDP. The hook measures how long DDP waits
    for the gradients of other ranks.
    """
    added, plain = _hook_cost()
    measured = f"{added:.1f} µs more than {plain:.0f} µs of CPU time"
    return Row("stalls: the waiting of DDP, a step", measured, target="≤ 20 µs", met=added <= 20)


def _hook_cost(rounds: int = 40, steps: int = 100) -> tuple[float, float]:
    """Return the µs of CPU time that the hook adds to a step, and the µs of a step without the hook.

    Steps with and without the hook run in turn in this process, which is a group of one.
    """
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        plain, noted = (
            DistributedDataParallel(ddp_rank.model_of_linear()),
            DistributedDataParallel(ddp_rank.model_of_linear()),
        )
        groups._note_waiting(noted)
        batch = torch.ones(1, ddp_rank.SIZE)

        def each(replica: nn.Module) -> float:
            began = time.process_time()
            for _ in range(steps):
                replica(batch).sum().backward()
            return (time.process_time() - began) / steps * 1e6

        each(plain)
        each(noted)
        without, with_hook = interleaved(rounds, lambda: each(plain), lambda: each(noted))
    finally:
        dist.destroy_process_group()
    added = statistics.median(b - a for a, b in zip(without, with_hook, strict=True))
    return added, statistics.median(without)


def of_rank(quick: bool) -> Row:
    """Return a row with the CPU time that a rank uses to report its steps. The service finds stalls by these
    reports.

    Ranks that report and ranks that do not report run side by side. Their steps of 50 ms only sleep, so the
    difference in CPU time is the cost of the reports.
    """
    seconds, pairs = (15.0 if quick else 45.0), 4
    code = _RANK.format(step=_STEP_SECONDS, settle=_SETTLE_SECONDS, seconds=seconds)
    with workspace() as folder, service(folder, capacity=2 * pairs) as server:
        tokens = running_jobs(server, folder, pairs, PARALLEL_INSTANCES="2")
        ranks = {
            kind: [
                subprocess.Popen(
                    [sys.executable, "-c", code, kind],
                    env={**os.environ, "REPORT_ADDRESS": server.address, "REPORT_TOKEN": token},
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for token in tokens
            ]
            for kind in ("watched", "alone")
        }
        used = {
            kind: sum(float(rank.communicate(timeout=seconds + 120)[0]) for rank in each)
            for kind, each in ranks.items()
        }
    share = (used["watched"] - used["alone"]) / (pairs * seconds)
    measured = (
        f"{share:.3%} of a core: {used['watched'] / pairs * 1000:.0f} ms of CPU time in {seconds:.0f} s, "
    )
    measured += f"{used['alone'] / pairs * 1000:.0f} ms without"
    return Row("stalls: a rank that is watched", measured, target="≤ 0.5 %", met=share <= 0.005)


def of_service(quick: bool) -> Row:
    """Return a row with the CPU time of a service while 1,000 ranks report. After each report, a rank pauses
    for as long as the service requests.
    """
    jobs, ranks, seconds = 10, 100, 20.0 if quick else 50.0
    with workspace() as folder, service(folder, capacity=jobs * ranks) as server:
        tokens = running_jobs(server, folder, jobs, PARALLEL_INSTANCES=str(ranks))
        with grpc.insecure_channel(server.address) as channel:
            stub = TrainingReporterStub(channel)
            ends = threading.Event()
            calls = [0] * len(tokens)

            def report(job: int) -> None:
                due = [time.monotonic() + random.uniform(0, _FIRST_SECONDS) for _ in range(ranks)]
                # The first pause of each rank is shortened at random, so that later reports are spread
                # evenly.
                spread = set(range(ranks))
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
                    pause = answer.quiet_pause.ToTimedelta().total_seconds()
                    due[rank] = time.monotonic() + pause * (random.random() if rank in spread else 1)
                    spread.discard(rank)
                    calls[job] += 1

            process = psutil.Process(server.pid)
            idle = _used(process, seconds / 4)
            threads = [threading.Thread(target=report, args=(job,)) for job in range(jobs)]
            for thread in threads:
                thread.start()
            time.sleep(_FIRST_SECONDS + _LONGEST_PAUSE)
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
    """Wait for `seconds`, and return how many cores the process has used on average in this time."""
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after = process.cpu_times()
    return (after.user + after.system - before.user - before.system) / (time.monotonic() - began)

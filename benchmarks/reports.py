"""Reports: the rate of calls, compared with an empty handler, and how much time reporting adds to a training
step.

- 100 running jobs report in turn, with 64 calls in flight; each call has a step and two metrics.
- A training loop of one process (a small model, about 10 ms a step) reports every step. It runs in turn with
  a loop that does not report.
"""

import sqlite3
import statistics
import threading
import time
from contextlib import closing
from pathlib import Path

import torch
from trainer_kit.grpc_sink import GrpcSink
from trainer_kit.progress import Reporter
from trainer_kit.report_sinks import NullSink

from benchmarks.support import (
    Client,
    Row,
    Server,
    ceiling,
    interleaved,
    ratio,
    request,
    run_alone,
    service,
    workspace,
)
from job_tracker.domain.report_key import FIRST_KEY, ReportKey
from job_tracker.reports.tokens import token_with
from training_service._generated import training_service_pb2 as pb

_JOBS = 100


def measure(quick: bool) -> list[Row]:
    seconds, rounds = (0.5, 7) if quick else (1.0, 21)
    with (
        workspace() as folder,
        ceiling() as empty,
        closing(Client()) as client,
        service(folder, capacity=_JOBS) as server,
    ):
        tokens = running_jobs(server, folder)
        nothing, taken = interleaved(
            rounds,
            lambda: client.calls_per_second(empty, "Report", seconds=seconds, tokens=["none"]),
            lambda: client.calls_per_second(server, "Report", seconds=seconds, tokens=tokens),
        )
        silent, reporting = steps(server, tokens[0], 5 if quick else 15)
    against_ceiling, overhead = ratio(taken, nothing), ratio(reporting, silent) - 1
    return [
        Row(
            "reports: calls/s against an empty handler",
            f"{statistics.median(taken):,.0f}/s",
            f"{statistics.median(nothing):,.0f}/s",
            f"{against_ceiling:.2f}",
            "≥ 0.5",
            against_ceiling >= 0.5,
        ),
        Row(
            "reports: time that reporting adds to a training step",
            f"{statistics.median(reporting) * 1000:.2f} ms",
            f"{statistics.median(silent) * 1000:.2f} ms",
            f"{overhead:+.2%}",
            "< 0.5 %",
            overhead < 0.005,
        ),
    ]


def running_jobs(server: Server, folder: Path, count: int = _JOBS, **parameters: str) -> list[str]:
    """Start jobs, wait until all of them run, and return their report tokens."""
    with server.stub() as stub:
        for _ in range(count):
            stub.Train(request(RUN_SECONDS="forever", **parameters))
        wanted = pb.ListTrainingJobsRequest(statuses=[pb.running], page_size=count)
        while len(stub.ListTrainingJobs(wanted).jobs) < count:
            time.sleep(0.05)
    with closing(sqlite3.connect(folder / "jobs.db")) as database:
        [secret] = database.execute("SELECT secret FROM report_keys").fetchone()
    key = ReportKey(id=FIRST_KEY, secret=secret)
    return [token_with(key, job_id, 1) for job_id in range(1, count + 1)]


def steps(server: Server, token: str, rounds: int) -> list[list[float]]:
    """Return two lists with a value per round: the seconds of a step without reports, and with reports."""
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(64, 512)

    def train(reporter: Reporter) -> float:
        started = time.perf_counter()
        count = 50
        for step in range(count):
            optimizer.zero_grad()
            loss = (model(batch) - batch).square().mean()
            loss.backward()
            optimizer.step()
            reporter.report(step=step, total_steps=count, loss=loss.item())
        return (time.perf_counter() - started) / count

    calls = Reporter(GrpcSink(server.address, token))
    train(calls)  # the first steps are slower, and import gRPC
    try:
        return interleaved(rounds, lambda: train(Reporter(NullSink())), lambda: train(calls))
    finally:
        calls.close()
        assert threading.active_count() < 10


if __name__ == "__main__":
    run_alone(measure)

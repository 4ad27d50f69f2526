"""Durable calls of Train, compared with empty handlers; and with many jobs in the store, compared with none.

The same client (64 calls in flight, a separate process) calls in turn, in the same run:

- a grpc.aio server whose handler returns at once, with the messages of the service: the cost of gRPC;
- the same without parsing and serializing: bytes in, bytes out;
- the service on a store that is nearly empty;
- the service on a store of 100,000 jobs, half of them queued.

Every job is on the disk when its call returns. The capacity is 1, and a job that never ends holds it. So
accepted jobs are not started, and acceptance alone is measured.
"""

import statistics
from contextlib import closing

from benchmarks.status import MANY
from benchmarks.support import (
    Client,
    Filling,
    Row,
    ceiling,
    commits,
    fill,
    interleaved,
    ratio,
    run_alone,
    service,
    workspace,
)
from training_service._generated import training_service_pb2 as pb


def measure(quick: bool) -> list[Row]:
    seconds, rounds = (0.5, 7) if quick else (0.8, 21)
    many = Filling(finished=10_000, queued=10_000) if quick else MANY
    with (
        workspace() as folder,
        ceiling() as empty,
        ceiling(is_raw=True) as raw,
        closing(Client()) as client,
    ):
        fill(folder / "few", Filling())
        fill(folder / "many", many)
        with service(folder / "few") as with_few, service(folder / "many") as with_many:
            nothing, bytes_only, few_jobs, many_jobs = interleaved(
                rounds,
                lambda: client.calls_per_second(empty, "Train", seconds=seconds),
                lambda: client.calls_per_second(raw, "Train", seconds=seconds),
                lambda: client.calls_per_second(with_few, "Train", seconds=seconds),
                lambda: client.calls_per_second(with_many, "Train", seconds=seconds),
            )
            with with_few.stub() as stub:
                accepted = stub.ListTrainingJobs(pb.ListTrainingJobsRequest(page_size=1)).jobs[0].job_id - 1
            share = commits(folder / "few") / accepted
    against_ceiling, growth = ratio(few_jobs, nothing), ratio(many_jobs, few_jobs)
    against_raw = ratio(few_jobs, bytes_only)
    count = many.finished + many.queued
    return [
        Row(
            "train: durable calls/s against an empty handler with the same messages",
            f"{statistics.median(few_jobs):,.0f}/s",
            f"{statistics.median(nothing):,.0f}/s",
            f"{against_ceiling:.2f}",
            "≥ 0.6",
            against_ceiling >= 0.6,
        ),
        Row(
            "train: durable calls/s against an empty handler of raw bytes",
            f"{statistics.median(few_jobs):,.0f}/s",
            f"{statistics.median(bytes_only):,.0f}/s",
            f"{against_raw:.2f}",
        ),
        Row(
            f"train: with {count:,} jobs against none",
            f"{statistics.median(many_jobs):,.0f}/s",
            f"{statistics.median(few_jobs):,.0f}/s",
            f"{growth:.2f}",
            "≥ 0.9",
            growth >= 0.9,
        ),
        Row("train: commits a call, 64 in flight", f"{share:.3f}"),
    ]


if __name__ == "__main__":
    run_alone(measure)

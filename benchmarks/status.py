"""Calls of GetTrainingStatus, compared with empty handlers; and with many jobs in the store, compared with
few.

The same client (64 calls in flight, a separate process) asks in turn, in the same run:

- a grpc.aio server whose handler returns at once, with the messages of the service: the cost of gRPC;
- the same without parsing and serializing: bytes in, bytes out;
- the service with 10 jobs; half of the calls ask for queued jobs (whose place in the queue has to be found),
  half for finished ones;
- the service with 100,000 jobs and the same halves; the queued jobs are from the whole queue.

The capacity is 1, and a job that never ends holds it, so that no job changes its state meanwhile.
"""

import random
import statistics
from contextlib import ExitStack, closing

from benchmarks.support import (
    Client,
    Filling,
    Row,
    Server,
    ceiling,
    fill,
    interleaved,
    ratio,
    run_alone,
    service,
    workspace,
)
from training_service._generated import training_service_pb2 as pb

FEW, MANY = Filling(finished=5, queued=5), Filling(finished=50_000, queued=50_000)
_ASKED = 1000


def measure(quick: bool) -> list[Row]:
    seconds, rounds = (0.5, 7) if quick else (0.8, 21)
    many = Filling(finished=10_000, queued=10_000) if quick else MANY
    with workspace() as folder, closing(Client()) as client, ExitStack() as stack:
        fill(folder / "few", FEW)
        fill(folder / "many", many)
        with service(folder / "few") as with_few, service(folder / "many") as with_many:
            with with_few.stub() as stub:
                asked = [
                    stub.GetTrainingStatus(pb.GetTrainingStatusRequest(job_id=job_id))
                    for job_id in (*FEW.finished_ids, *FEW.queued_ids)
                ]
            empty = stack.enter_context(ceiling(asked))
            raw = stack.enter_context(ceiling(asked, is_raw=True))

            def rate(server: Server, filling: Filling) -> float:
                ids = mixed_ids(filling)
                return client.calls_per_second(server, "GetTrainingStatus", seconds=seconds, job_ids=ids)

            nothing, bytes_only, few_jobs, many_jobs = interleaved(
                rounds,
                lambda: rate(empty, FEW),
                lambda: rate(raw, FEW),
                lambda: rate(with_few, FEW),
                lambda: rate(with_many, many),
            )
    against_ceiling, growth = ratio(few_jobs, nothing), ratio(many_jobs, few_jobs)
    against_raw = ratio(few_jobs, bytes_only)
    count = many.finished + many.queued
    return [
        Row(
            "status: calls/s against an empty handler with the same messages",
            f"{statistics.median(few_jobs):,.0f}/s",
            f"{statistics.median(nothing):,.0f}/s",
            f"{against_ceiling:.2f}",
            "≥ 0.85",
            against_ceiling >= 0.85,
        ),
        Row(
            "status: calls/s against an empty handler of raw bytes",
            f"{statistics.median(few_jobs):,.0f}/s",
            f"{statistics.median(bytes_only):,.0f}/s",
            f"{against_raw:.2f}",
        ),
        Row(
            f"status: with {count:,} jobs against 10",
            f"{statistics.median(many_jobs):,.0f}/s",
            f"{statistics.median(few_jobs):,.0f}/s",
            f"{growth:.2f}",
            "≥ 0.9",
            growth >= 0.9,
        ),
    ]


def mixed_ids(filling: Filling) -> list[int]:
    """Return the ids that calls ask for: queued and finished jobs in turn, drawn from the whole store with a
    fixed seed.
    """
    pick = random.Random(1)
    return [
        job_id
        for _ in range(min(_ASKED, filling.queued))
        for job_id in (pick.choice(filling.queued_ids), pick.choice(filling.finished_ids))
    ]


if __name__ == "__main__":
    run_alone(measure)

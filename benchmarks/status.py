"""GetTrainingStatus: against an empty handler, and with many jobs in the store against few.

The same client (64 calls in flight, a process of its own) asks in turn, in the same run:

- a grpc.aio server whose handler returns at once: what gRPC costs, whatever we do;
- the service with 10 jobs; half of the calls are about queued jobs (whose place in the queue has to
  be found), half about finished ones;
- the service with 100,000 jobs, half of each as well, queued ones from all over the queue.

Capacity 1 is held by a job that never ends, so that nothing moves meanwhile.
"""

import random
import statistics
from contextlib import closing

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

FEW, MANY = Filling(finished=5, queued=5), Filling(finished=50_000, queued=50_000)
_ASKED = 1000


def measure(quick: bool) -> list[Row]:
    seconds, rounds = (0.5, 7) if quick else (0.8, 21)
    many = Filling(finished=10_000, queued=10_000) if quick else MANY
    with workspace() as folder, ceiling() as empty, closing(Client()) as client:
        fill(folder / "few", FEW)
        fill(folder / "many", many)
        with service(folder / "few") as with_few, service(folder / "many") as with_many:

            def rate(server: Server, filling: Filling) -> float:
                ids = mixed_ids(filling)
                return client.calls_per_second(server, "GetTrainingStatus", seconds=seconds, job_ids=ids)

            nothing, few_jobs, many_jobs = interleaved(
                rounds,
                lambda: rate(empty, FEW),
                lambda: rate(with_few, FEW),
                lambda: rate(with_many, many),
            )
    against_ceiling, growth = ratio(few_jobs, nothing), ratio(many_jobs, few_jobs)
    count = many.finished + many.queued
    return [
        Row(
            "status: calls/s against an empty handler",
            f"{statistics.median(few_jobs):,.0f}/s",
            f"{statistics.median(nothing):,.0f}/s",
            f"{against_ceiling:.2f}",
            "≥ 0.7",
            against_ceiling >= 0.7,
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
    """Ids to ask for: queued and finished ones in turn, from all over the store, the same in every run."""
    pick = random.Random(1)
    return [
        job_id
        for _ in range(min(_ASKED, filling.queued))
        for job_id in (pick.choice(filling.queued_ids), pick.choice(filling.finished_ids))
    ]


if __name__ == "__main__":
    run_alone(measure)

"""Makes the load of a simulation from the jobs of a trace."""

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from job_tracker.scheduling.shapes import total
from job_tracker.scheduling.simulation.trace import MOST_JOBS, TraceError, TraceJob


def prepared(
    jobs: Sequence[TraceJob],
    *,
    since: float = 0.0,
    longest: float | None = None,
    priorities: bool = False,
) -> list[TraceJob]:
    """Return the jobs submitted after `since` (0: all jobs), with run times cut at `longest` seconds.

    Run times below a second become a second. Without `priorities`, all jobs get priority 0. The submission
    times are shifted, so that the first is 0. Raises TraceError if no job is left.
    """
    kept = [job for job in jobs if job.submitted_at > since or not since]
    if not kept:
        raise TraceError(f"no job was submitted after {since:g} s; choose an earlier time")
    first = min(job.submitted_at for job in kept)
    return [
        replace(
            job,
            submitted_at=job.submitted_at - first,
            run=max(1.0, job.run if longest is None else min(job.run, longest)),
            priority=job.priority if priorities else 0,
        )
        for job in kept
    ]


def work(jobs: Sequence[TraceJob]) -> float:
    """Return the work of the jobs in instance-seconds."""
    return sum(job.run * job.instances for job in jobs)


def offered(jobs: Sequence[TraceJob], capacity: int) -> float:
    """Return the work of the jobs, divided by the work that `capacity` instances can do between the first
    submission and the last.

    Return 0 if all jobs are submitted at once.
    """
    span = max(job.submitted_at for job in jobs) - min(job.submitted_at for job in jobs)
    return work(jobs) / (capacity * span) if span else 0.0


def scaled(jobs: Sequence[TraceJob], capacity: int, load: float) -> list[TraceJob]:
    """Return the jobs with their submission times scaled so that `offered` returns `load` for them.

    If all jobs are submitted at once, they all get the submission time 0.
    """
    factor = offered(jobs, capacity) / load
    return [replace(job, submitted_at=job.submitted_at * factor) for job in jobs]


def queued(jobs: Sequence[TraceJob], queues: int, seed: int) -> list[TraceJob]:
    """Return the jobs, spread over the queues q1, q2 … by a hash of the seed and the number of the job."""
    digests = (hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=8) for number in range(len(jobs)))
    places = (int.from_bytes(digest.digest(), "big") % queues for digest in digests)
    return [replace(job, queue=f"q{place + 1}") for job, place in zip(jobs, places, strict=True)]


def continued(
    jobs: Sequence[TraceJob], capacity: Mapping[str, int], load: float, seconds: float, seed: int
) -> list[TraceJob]:
    """Return further jobs like these, submitted at random times within `seconds`.

    On average, they use the share `load` of the capacity. A job's share of the capacity is its largest share
    of any resource. Raises TraceError if more than MOST_JOBS / 2 jobs are to be expected.
    """
    rate = load * len(jobs) / sum(_seconds_of_all(job, capacity) for job in jobs)
    if rate * seconds > MOST_JOBS / 2:
        raise TraceError(
            f"that would be about {rate * seconds:.0f} jobs; choose a lower load or a shorter time"
        )
    draws = random.Random(seed)  # noqa: S311  # no secret
    at, made = draws.expovariate(rate), list[TraceJob]()
    while at < seconds:
        made.append(replace(draws.choice(jobs), submitted_at=at, promise=None, begun=None))
        at += draws.expovariate(rate)
    return made


def _seconds_of_all(job: TraceJob, capacity: Mapping[str, int]) -> float:
    """Return the run time of the job, times the largest share of any resource that the job needs."""
    needs = total(job.parts)
    shares = [needs.get(name, 0) / amount for name, amount in capacity.items() if amount]
    return job.run * max(shares, default=0.0)

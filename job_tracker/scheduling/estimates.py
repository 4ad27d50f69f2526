"""Estimates of when waiting jobs start, from the work ahead of them and from earlier waits."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from job_tracker.scheduling.model import Promise, Snapshot
from job_tracker.scheduling.waits import WaitRule
from job_tracker.scheduling.work import Ahead, ahead


class Basis(StrEnum):
    """The run times on which an estimate rests. The codes are stable: they are in the API."""

    GIVEN = "given"
    """The estimate uses only times that callers state, and deadlines."""
    LEARNED = "learned"
    """The estimate also uses run times of earlier attempts."""
    ASSUMED = "assumed"
    """The estimate also uses an assumed run time, since the run time of a job ahead is unknown."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The expected start of a job, in Unix seconds."""

    median: float
    high: float
    """The later estimate, in Unix seconds: nine in ten such jobs start earlier."""
    basis: Basis


def estimates(
    snapshot: Snapshot,
    now: float,
    rule: WaitRule,
    promises: Mapping[int, Promise],
    job_ids: Iterable[int] | None = None,
) -> dict[int, Estimate]:
    """Return the expected starts by job, for the waiting jobs `job_ids`; None: for all waiting jobs.

    The result is empty if no flavor limits the number of instances. No estimate is later than the start that
    `promises` has for the job. The cost hardly grows with the number of jobs in `job_ids`.
    """
    if job_ids is None:
        waiting = snapshot.waiting
        job_ids = [gang.job_id for queue in waiting.queues() for gang in waiting.in_order(queue)]
    found = {}
    for job_id, each in ahead(snapshot, now, job_ids).items():
        promise = promises.get(job_id)
        wait = rule.wait(each.seconds, max(0.0, promise.at - now) if promise is not None else None)
        found[job_id] = Estimate(now + wait.median, now + wait.high, _basis(each))
    return found


def _basis(each: Ahead) -> Basis:
    if each.is_assumed:
        return Basis.ASSUMED
    return Basis.LEARNED if each.is_learned else Basis.GIVEN

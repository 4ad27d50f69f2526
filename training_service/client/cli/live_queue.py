"""Turns the queue of a service into the jobs and the cluster of a simulation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from job_tracker.scheduling.model import (
    Allocation,
    Expected,
    Flavor,
    Limit,
    Node,
    Part,
    PreemptionRules,
    Promise,
    Queue,
    Usage,
)
from job_tracker.scheduling.options import PlannerOptions
from job_tracker.scheduling.simulation.attempts import Saving
from job_tracker.scheduling.simulation.cluster import BEGIN, Cluster
from job_tracker.scheduling.simulation.trace import Begun, TraceJob
from training_service._generated import training_service_pb2 as pb

OTHERS: Final = "(others)"
"""In the simulation, the project of all jobs that the caller may not see."""


@dataclass(frozen=True, slots=True)
class LiveQueue:
    """The queue of a service at one time, from which a simulation starts."""

    jobs: list[TraceJob]
    cluster: Cluster
    unknown: int
    """The number of jobs whose run time is not known."""
    omitted: int
    """The number of further jobs, which the service has left out of its snapshot."""

    @property
    def running(self) -> int:
        """The number of jobs that run already."""
        return sum(job.begun is not None for job in self.jobs)


def live_queue(snapshot: pb.GetQueueSnapshotResponse, assumed: float) -> LiveQueue:
    """Return the queue of a service for a simulation. Jobs of unknown length run for `assumed` seconds."""
    begin = _seconds(snapshot.taken_at)
    shapes = [tuple(Part(part.count, dict(part.each)) for part in shape.parts) for shape in snapshot.shapes]
    jobs = [_job(each, shapes[each.shape], begin, assumed) for each in snapshot.jobs]
    queues = {each.name: _queue(each) for each in snapshot.queues}
    usage = {each.name: _usage(each) for each in snapshot.queues if each.usage}
    options = PlannerOptions(
        reservations=snapshot.reservations,
        overtake_limit=snapshot.overtake_limit,
        half_life=snapshot.usage_half_life.ToTimedelta().total_seconds(),
    )
    return LiveQueue(
        jobs=jobs,
        cluster=Cluster(tuple(map(_flavor, snapshot.flavors)), queues, usage, options),
        unknown=sum(job.said is None for job in jobs),
        omitted=snapshot.omitted_jobs,
    )


def _job(job: pb.SnapshotJob, parts: tuple[Part, ...], begin: float, assumed: float) -> TraceJob:
    said, begun, promise, length = None, None, None, assumed
    if job.HasField("expected_seconds"):
        said = Expected(median=job.expected_seconds, high=job.expected_high_seconds)
        length = said.median
    length = max(1.0, length)
    if job.HasField("admitted_at"):
        at = min(0.0, _seconds(job.admitted_at) - begin)
        nodes = tuple(map(str, job.machines))
        allocation = Allocation(flavor=job.flavor, trainers=job.trainers, nodes=nodes)
        saved_at = min(0.0, _seconds(job.saved_at) - begin) if job.HasField("saved_at") else None
        begun = Begun(at, allocation, saved_at)
        while at + length <= 0:  # longer than expected: double the expected length, as the planner does
            length *= 2
    if job.HasField("promised_start"):
        promise = Promise(_seconds(job.promised_start) - begin, job.flavor)
    return TraceJob(
        submitted_at=min(0.0, _seconds(job.submitted_at) - begin),
        run=length,
        instances=sum(part.count for part in parts),
        queue=job.queue,
        priority=job.priority,
        project=job.project or OTHERS,
        said=said,
        each=parts,
        least=job.least_trainers,
        flavor=job.wanted_flavor,
        promise=promise,
        begun=begun,
        saving=Saving(startup=job.startup_seconds) if job.startup_seconds else Saving(),
        preemptions=job.preemptions,
    )


def _flavor(flavor: pb.SnapshotFlavor) -> Flavor:
    nodes = tuple(
        Node(name=str(each.number), capacity=dict(each.capacity), is_open=not each.is_closed)
        for each in flavor.machines
    )
    return Flavor(
        name=flavor.name,
        capacity=dict(flavor.capacity),
        nodes=nodes,
        is_followed=flavor.follows_machines,
    )


def _queue(queue: pb.SnapshotQueue) -> Queue:
    limits: dict[str, Mapping[str, Limit]] = {}
    for each in queue.quotas:
        limit = Limit(
            nominal=each.nominal,
            borrow=each.borrow if each.HasField("borrow") else None,
            lend=each.lend if each.HasField("lend") else None,
        )
        limits[each.flavor] = {**limits.get(each.flavor, {}), each.resource: limit}
    return Queue(
        name=queue.name,
        parent=queue.parent,
        weight=queue.weight,
        limits=limits,
        max_running=queue.max_running if queue.HasField("max_running") else None,
        preemption=_rules(queue.rules) if queue.HasField("rules") else PreemptionRules(),
    )


def _rules(rules: pb.SnapshotRules) -> PreemptionRules:
    return PreemptionRules(
        by_priority=rules.by_priority,
        reclaim=rules.reclaim,
        min_runtime=rules.min_runtime_seconds,
        max_preemptions=rules.max_preemptions,
        protected=rules.protected if rules.HasField("protected") else None,
        resize_period=rules.resize_period_seconds,
    )


def _usage(queue: pb.SnapshotQueue) -> Usage:
    amounts: dict[str, dict[str, float]] = {}
    for each in queue.usage:
        amounts.setdefault(each.flavor, {})[each.resource] = each.amount
    return Usage(BEGIN, amounts)


def _seconds(at: Timestamp) -> float:
    return float(at.seconds + at.nanos / 1e9)

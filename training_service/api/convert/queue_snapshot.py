"""Converts a snapshot of the queue, as the caller may see it, to its message."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from job_tracker.scheduling.model import Flavor, Gang, PreemptionRules, Queue, Usage
from job_tracker.scheduling.queue_snapshot import QueueSnapshot, SeenJob
from job_tracker.scheduling.shapes import PartsKey, parts_key
from training_service._generated import training_service_pb2 as pb
from training_service.api.convert.times import duration_of, time_of, timestamp

MOST_BYTES: Final = 2 * 1024 * 1024
"""The largest size in bytes of all jobs in the message together. Further jobs are left out. A bound is
needed, since callers choose how long the texts of their jobs are."""
_LARGEST = 2**63 - 1


def queue_snapshot_of(snapshot: QueueSnapshot) -> pb.GetQueueSnapshotResponse:
    """Convert a snapshot of the queue to its message."""
    message = pb.GetQueueSnapshotResponse(
        taken_at=timestamp(snapshot.taken_at),
        flavors=map(_flavor, snapshot.flavors),
        queues=[_queue(each, snapshot.usage.get(name)) for name, each in snapshot.queues.items()],
        reservations=snapshot.options.reservations,
        overtake_limit=snapshot.options.overtake_limit,
        usage_half_life=duration_of(timedelta(seconds=snapshot.options.half_life)),
    )
    _add_jobs(message, snapshot)
    return message


def _add_jobs(message: pb.GetQueueSnapshotResponse, snapshot: QueueSnapshot) -> None:
    shapes: dict[PartsKey, int] = {}
    size = 0
    for job in snapshot.jobs:
        key = parts_key(job.gang.parts)
        place = shapes.get(key, len(shapes))
        made = _job(job, place)
        shape = None if key in shapes else _shape(job.gang)
        size += made.ByteSize() + (shape.ByteSize() if shape else 0)
        if size > MOST_BYTES:
            break
        message.jobs.append(made)
        if shape is not None:
            shapes[key] = place
            message.shapes.append(shape)
    message.omitted_jobs = snapshot.omitted + len(snapshot.jobs) - len(message.jobs)


def _flavor(flavor: Flavor) -> pb.SnapshotFlavor:
    machines = [
        pb.SnapshotMachine(
            number=int(node.name), capacity=_amounts(node.capacity), is_closed=not node.is_open
        )
        for node in flavor.nodes
    ]
    return pb.SnapshotFlavor(
        name=flavor.name,
        capacity=_amounts(flavor.capacity),
        machines=machines,
        follows_machines=flavor.is_followed,
    )


def _queue(queue: Queue, usage: Usage | None) -> pb.SnapshotQueue:
    return pb.SnapshotQueue(
        name=queue.name,
        parent=queue.parent,
        weight=queue.weight,
        quotas=_quotas(queue),
        max_running=queue.max_running,
        usage=_usage(usage) if usage is not None else (),
        rules=_rules(queue.preemption),
    )


def _rules(rules: PreemptionRules) -> pb.SnapshotRules:
    return pb.SnapshotRules(
        by_priority=rules.by_priority,
        reclaim=rules.reclaim,
        min_runtime_seconds=rules.min_runtime,
        max_preemptions=rules.max_preemptions,
        protected=rules.protected,
        resize_period_seconds=rules.resize_period,
    )


def _quotas(queue: Queue) -> Iterator[pb.SnapshotQuota]:
    for flavor, limits in queue.limits.items():
        for resource, limit in limits.items():
            yield pb.SnapshotQuota(
                flavor=flavor,
                resource=resource,
                nominal=_bounded(limit.nominal),
                borrow=None if limit.borrow is None else _bounded(limit.borrow),
                lend=None if limit.lend is None else _bounded(limit.lend),
            )


def _usage(usage: Usage) -> Iterator[pb.SnapshotUsage]:
    for flavor, amounts in usage.amounts.items():
        for resource, amount in amounts.items():
            yield pb.SnapshotUsage(flavor=flavor, resource=resource, amount=amount)


def _shape(gang: Gang) -> pb.SnapshotShape:
    return pb.SnapshotShape(
        parts=[pb.SnapshotPart(count=part.count, each=_amounts(part.each)) for part in gang.parts]
    )


def _job(job: SeenJob, shape: int) -> pb.SnapshotJob:
    expected, allocation, stake = job.gang.expected, job.allocation, job.stake
    return pb.SnapshotJob(
        job_id=job.gang.job_id,
        project=job.project,
        queue=job.gang.queue,
        shape=shape,
        least_trainers=job.gang.least,
        priority=job.gang.priority,
        submitted_at=timestamp(job.submitted_at),
        expected_seconds=expected.median if expected else None,
        expected_high_seconds=expected.high if expected else None,
        admitted_at=timestamp(job.admitted_at),
        flavor=allocation.flavor if allocation else job.promise.flavor if job.promise else "",
        trainers=allocation.trainers if allocation else 0,
        machines=[int(name) for name in allocation.nodes if name] if allocation else (),
        promised_start=timestamp(time_of(job.promise.at)) if job.promise else None,
        saved_at=_saved_at(job),
        startup_seconds=stake.startup if stake else 0.0,
        preemptions=stake.preemptions if stake else 0,
        wanted_flavor=job.gang.flavors[0] if job.gang.flavors else "",
    )


def _saved_at(job: SeenJob) -> Timestamp | None:
    """Return when a running job's attempt last reported a checkpoint. None: it has reported none."""
    if job.stake is None or job.admitted_at is None or job.stake.saved_at <= job.admitted_at.timestamp():
        return None
    return timestamp(time_of(job.stake.saved_at))


def _amounts(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: _bounded(amount) for name, amount in amounts.items()}


def _bounded(amount: int) -> int:
    return min(amount, _LARGEST)

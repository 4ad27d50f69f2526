"""The message of the queue is bounded."""

from dataclasses import replace
from typing import Any

import pytest

from job_tracker.scheduling.model import Allocation, Flavor, Gang, Part, PreemptionRules, Queue, Stake
from job_tracker.scheduling.options import PlannerOptions
from job_tracker.scheduling.queue_snapshot import QueueSnapshot, SeenJob
from tests.support.jobs import NOON
from training_service._generated import training_service_pb2 as pb
from training_service.api.convert import queue_snapshot
from training_service.api.convert.queue_snapshot import queue_snapshot_of


def seen(job_id: int, **each: Any) -> SeenJob:
    gang = Gang(job_id=job_id, parts=(Part(1, {"instances": 1, **each}),))
    return SeenJob(gang=gang, project="vision", submitted_at=NOON)


def snapshot(jobs: list[SeenJob]) -> QueueSnapshot:
    return QueueSnapshot(
        taken_at=NOON,
        flavors=(Flavor(name="default", capacity={"instances": 1, "memory": 1 << 80}),),
        queues={"default": Queue(name="default")},
        usage={},
        jobs=jobs,
        omitted=2,
        options=PlannerOptions(),
    )


def test_alike_jobs_share_a_shape() -> None:
    found = queue_snapshot_of(snapshot([seen(1), seen(2, cpu=500), seen(3)]))
    assert [each.shape for each in found.jobs] == [0, 1, 0]
    assert [dict(shape.parts[0].each) for shape in found.shapes] == [
        {"instances": 1},
        {"instances": 1, "cpu": 500},
    ]
    assert found.omitted_jobs == 2
    assert found.flavors[0].capacity["memory"] == 2**63 - 1


def test_rules_and_what_a_stop_would_lose_are_in_it() -> None:
    at = NOON.timestamp()
    stake = Stake(attempt=1, saved_at=at + 50, startup=7.5, preemptions=2)
    running = replace(seen(1), admitted_at=NOON, allocation=Allocation(), stake=stake)
    unsaved = replace(running, stake=replace(stake, saved_at=at))
    rules = PreemptionRules(by_priority=True, min_runtime=5.0, protected=100, resize_period=60.0)
    queues = {"default": Queue(name="default", preemption=rules)}
    found = queue_snapshot_of(replace(snapshot([running, unsaved, seen(3)]), queues=queues))
    assert found.queues[0].rules == pb.SnapshotRules(
        by_priority=True,
        reclaim=True,
        min_runtime_seconds=5.0,
        max_preemptions=10,
        protected=100,
        resize_period_seconds=60.0,
    )
    assert [each.HasField("saved_at") for each in found.jobs] == [True, False, False]
    assert found.jobs[0].saved_at.ToSeconds() == at + 50
    assert (found.jobs[0].startup_seconds, found.jobs[0].preemptions) == (7.5, 2)


def test_jobs_beyond_the_bound_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_snapshot, "MOST_BYTES", 5_000)
    found = queue_snapshot_of(snapshot([seen(number, **{f"r{number}": 1}) for number in range(1000)]))
    assert 10 < len(found.jobs) < 200
    assert len(found.shapes) == len(found.jobs)
    assert found.omitted_jobs == 2 + 1000 - len(found.jobs)
    assert found.ByteSize() < 6_000

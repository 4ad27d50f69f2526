"""Random states of queues, for tests and benchmarks of the planner and of explanations."""

import random
from collections.abc import Sequence
from dataclasses import replace

from job_tracker.scheduling.model import (
    INSTANCES,
    Expected,
    Flavor,
    Gang,
    Limit,
    Node,
    Part,
    Plan,
    Queue,
    Running,
    Snapshot,
)
from job_tracker.scheduling.planner import plan
from job_tracker.scheduling.waiting import WaitingGangs

NOW = 1_000.0
CLASSES = {"low": -100, "normal": 0, "high": 100}
_GPU = "nvidia.com/gpu"


def random_state(seed: int) -> Snapshot:
    """Return a random state just before a pass: some jobs have run for 5 s, and others wait."""
    chance = random.Random(seed)
    flavors = _flavors(chance)
    queues = _queues(chance, flavors)
    leaves = [name for name in queues if not name.startswith("c")]
    earlier = WaitingGangs(
        _gang(chance, number, leaves, flavors) for number in range(1, 1 + chance.randint(0, 20))
    )
    state = Snapshot(flavors=flavors, queues=queues, waiting=earlier, running={})
    state = started(state, plan(state, NOW - 5), NOW - 5)
    waiting = WaitingGangs(
        _gang(chance, number, leaves, flavors) for number in range(100, 100 + chance.randint(1, 30))
    )
    return replace(state, waiting=waiting, promises={}, is_open=chance.random() < 0.95)


def started(state: Snapshot, decided: Plan, now: float) -> Snapshot:
    """Return the state after the decisions of a plan."""
    waiting = WaitingGangs(gangs_of(state))
    running = dict(state.running)
    for admit in decided.admitted:
        gang = waiting.get(admit.job_id)
        assert gang is not None
        waiting.remove(admit.job_id)
        running[admit.job_id] = Running(gang, admit.allocation, now)
    promises = {reserve.job_id: reserve.promise for reserve in decided.reserved}
    return replace(state, waiting=waiting, running=running, promises=promises)


def gangs_of(state: Snapshot) -> list[Gang]:
    """Return the waiting gangs, queue by queue."""
    return [gang for queue in state.waiting.queues() for gang in state.waiting.in_order(queue)]


def _flavors(chance: random.Random) -> Sequence[Flavor]:
    found = []
    for name in ("default", "a100")[: chance.choice([1, 1, 2])]:
        if chance.random() < 0.3:
            nodes = tuple(
                Node(name=f"{name}-{number}", capacity={INSTANCES: 4, _GPU: 4})
                for number in range(chance.randint(1, 5))
            )
            capacity = {INSTANCES: 4 * len(nodes), _GPU: 4 * len(nodes)}
            found.append(Flavor(name=name, capacity=capacity, nodes=nodes))
        else:
            instances = chance.randint(1, 24)
            capacity = {INSTANCES: instances}
            if chance.random() < 0.5:
                capacity[_GPU] = 2 * instances
            found.append(Flavor(name=name, capacity=capacity))
    return tuple(found)


def _queues(chance: random.Random, flavors: Sequence[Flavor]) -> dict[str, Queue]:
    queues = {"c": Queue(name="c", max_running=chance.choice([None, None, None, 5]))}
    for name in "abd":
        limits: dict[str, dict[str, Limit]] = {}
        for flavor in flavors:
            if chance.random() < 0.5:
                instances = flavor.capacity[INSTANCES]
                limit = Limit(
                    nominal=chance.randint(0, max(1, instances // 4)),
                    borrow=chance.choice([None, 0, 4]),
                    lend=chance.choice([None, 0, 2]),
                )
                limits[flavor.name] = {INSTANCES: limit}
        queues[name] = Queue(
            name=name,
            parent=chance.choice(["", "c"]),
            weight=chance.choice([1.0, 3.0]),
            limits=limits,
            max_running=chance.choice([None, None, None, 3, 0]),
            max_priority=chance.choice([None, None, 0]),
        )
    return queues


def _gang(chance: random.Random, job_id: int, leaves: Sequence[str], flavors: Sequence[Flavor]) -> Gang:
    count = chance.choice([1, 1, 1, 2, 4, 8])
    seconds = chance.choice([None, 10.0, 100.0, 1000.0])
    each = {INSTANCES: 1, _GPU: 1} if chance.random() < 0.5 else {INSTANCES: 1}
    parts = [Part(count, each)]
    if chance.random() < 0.1:
        parts.append(Part(chance.randint(1, 2), {INSTANCES: 1}))
    names = [flavor.name for flavor in flavors]
    return Gang(
        job_id=job_id,
        queue=chance.choice(leaves),
        priority=chance.choice([-100, 0, 0, 0]),
        parts=tuple(parts),
        least=chance.choice([0, 0, 0, 1]),
        flavors=(chance.choice(names),) if chance.random() < 0.2 else (),
        expected=Expected(median=seconds, high=2 * seconds) if seconds is not None else None,
    )

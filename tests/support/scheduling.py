"""Random states of the planner: any tree of queues that is allowed, any waiting and running gangs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from job_tracker.scheduling.model import (
    Expected,
    Flavor,
    Gang,
    Limit,
    Node,
    Part,
    Plan,
    Promise,
    Queue,
    Running,
    Snapshot,
    Usage,
)
from job_tracker.scheduling.planner import PlannerOptions, plan
from job_tracker.scheduling.waiting import WaitingGangs

NOW = 1_000_000.0
LEAVES = ("a", "b", "c", "d")
RESOURCES = ("instances", "gpu")


@dataclass
class World:
    """A pool, and the gangs that wait and run in it. Plans can be carried out in it."""

    flavors: tuple[Flavor, ...]
    queues: Mapping[str, Queue]
    options: PlannerOptions = field(default_factory=PlannerOptions)
    now: float = NOW
    waiting: dict[int, Gang] = field(default_factory=dict)
    running: dict[int, Running] = field(default_factory=dict)
    promises: dict[int, Promise] = field(default_factory=dict)
    usage: dict[str, Usage] = field(default_factory=dict)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            flavors=self.flavors,
            queues=self.queues,
            waiting=WaitingGangs(self.waiting.values()),
            running=self.running,
            usage=self.usage,
            promises=self.promises,
        )

    def plan(self) -> Plan:
        return plan(self.snapshot(), self.now, self.options)

    def carry_out(self, decided: Plan) -> None:
        for admit in decided.admitted:
            gang = self.waiting.pop(admit.job_id)
            self.running[admit.job_id] = Running(gang, admit.allocation, self.now)
        self.promises = {each.job_id: each.promise for each in decided.reserved}

    def turn(self) -> Plan:
        decided = self.plan()
        self.carry_out(decided)
        return decided

    def used(self, flavor: str, resource: str, queues: Sequence[str] | None = None) -> int:
        """Return the amount of the resource that gangs use on the flavor; with `queues`, only gangs of
        these queues.
        """
        return sum(
            needs(run).get(resource, 0)
            for run in self.running.values()
            if run.allocation.flavor == flavor and (queues is None or run.gang.queue in queues)
        )

    def below(self, name: str) -> list[str]:
        """Return the leaves below a queue; for a leaf, the queue itself."""
        return [leaf for leaf in LEAVES if leaf == name or self.queues[leaf].parent == name]


def needs(run: Running) -> dict[str, int]:
    """Return the instances and GPUs that a running gang uses."""
    found = {"instances": 0, "gpu": 0}
    for index, part in enumerate(run.gang.parts):
        count = run.allocation.trainers or part.count if index == 0 else part.count
        found["instances"] += count
        found["gpu"] += count * part.each.get("gpu", 0)
    return found


def any_gang(chance: Random, job_id: int, lengths: Sequence[float | None], flavors: Sequence[str]) -> Gang:
    """Return a random gang with this id."""
    gpu, others = chance.choice([0, 0, 1, 2]), chance.choice([0, 0, 0, 1])
    trainers = Part(chance.choice([1, 1, 2, 4, 8]), {"gpu": gpu} if gpu else {})
    length = chance.choice(lengths)
    return Gang(
        job_id=job_id,
        queue=chance.choice(LEAVES),
        priority=chance.choice([0, 0, 0, 1, 2]),
        parts=(trainers, Part(others, {"cpu": 1})) if others else (trainers,),
        least=chance.choice([0, 0, 1]),
        flavors=chance.choice([(), (), (), (flavors[0],), (flavors[-1],)]),
        expected=None if length is None else Expected(median=length, high=length),
    )


def any_world(
    chance: Random,
    *,
    lengths: Sequence[float | None] = (None, 10.0, 100.0, 1_000.0),
    with_nodes: bool = True,
    with_limits: bool = True,
    pools: Sequence[str] = ("x", "x", "xy"),
) -> World:
    """Return a random state to which plans can lead: a plan was carried out, some jobs ended, others came."""
    flavors = tuple(_flavor(chance, name, with_nodes) for name in chance.choice(pools))
    tree = _tree(chance, flavors) if with_limits else {name: Queue(name=name) for name in ("top", *LEAVES)}
    options = PlannerOptions(
        reservations=chance.choice([0, 1, 3, 100, 100]), overtake_limit=chance.choice([0, 2, 8])
    )
    world = World(flavors, tree, options, NOW - 5)
    names = [each.name for each in flavors]
    for leaf in LEAVES:
        if chance.choice([True, False]):
            used = {flavor: {"instances": chance.choice([0.0, 1e3, 1e5, 1e6])} for flavor in names}
            world.usage[leaf] = Usage(NOW - 50, used)
    for job_id in range(chance.randint(0, 12)):
        world.waiting[job_id] = any_gang(chance, job_id, lengths, names)
    world.turn()
    world.now = NOW
    for job_id in list(world.running):
        if chance.choice([True, False, False]):
            del world.running[job_id]
    for job_id in range(100, 100 + chance.randint(0, 15)):
        world.waiting[job_id] = any_gang(chance, job_id, lengths, names)
    return world


def _flavor(chance: Random, name: str, with_nodes: bool) -> Flavor:
    if with_nodes and chance.choice([False, False, True]):
        sizes = [chance.randint(1, 8) for _ in range(chance.randint(1, 4))]
        nodes = tuple(
            Node(name=f"{name}{i}", capacity={"instances": size, "gpu": size // 2})
            for i, size in enumerate(sizes)
        )
        capacity = {each: sum(node.capacity[each] for node in nodes) for each in RESOURCES}
        return Flavor(name=name, capacity=capacity, nodes=nodes)
    return Flavor(name=name, capacity={"instances": chance.randint(1, 24), "gpu": chance.randint(0, 24)})


def _tree(chance: Random, flavors: Sequence[Flavor]) -> dict[str, Queue]:
    """Return a random tree whose quotas fit the flavors: a parent `top`, and the leaves below it or beside
    it.
    """
    left = {(each.name, name): amount for each in flavors for name, amount in each.capacity.items()}
    queues = {"top": _queue(chance, "top", "", left, left)}
    inside = {
        (flavor, resource): limit.nominal
        for flavor, limits in queues["top"].limits.items()
        for resource, limit in limits.items()
    }
    for leaf in LEAVES:
        parent = chance.choice(["", "top"])
        queues[leaf] = _queue(chance, leaf, parent, left, inside if parent else {})
    return queues


def _queue(
    chance: Random,
    name: str,
    parent: str,
    left: dict[tuple[str, str], int],
    inside: dict[tuple[str, str], int],
) -> Queue:
    """Return a queue with a random quota, up to the unassigned part of its parent's quota or of the
    capacity.
    """
    limits: dict[str, dict[str, Limit]] = {}
    for flavor, resource in left:
        if chance.choice([True, False]):
            source = inside if (flavor, resource) in inside else left
            nominal = chance.randint(0, source[flavor, resource])
            source[flavor, resource] -= nominal
            limits.setdefault(flavor, {})[resource] = Limit(
                nominal=nominal,
                borrow=chance.choice([None, None, 0, 1, 4]),
                lend=chance.choice([None, None, 0, 1, 4]),
            )
    return Queue(
        name=name,
        parent=parent,
        limits=limits,
        weight=chance.choice([1.0, 1.0, 2.0, 5.0]),
        max_running=chance.choice([None, None, None, 1, 3]),
    )


def copy_of(world: World) -> World:
    """Return a copy of the world with its own collections."""
    return replace(
        world,
        waiting=dict(world.waiting),
        running=dict(world.running),
        promises=dict(world.promises),
        usage=dict(world.usage),
    )

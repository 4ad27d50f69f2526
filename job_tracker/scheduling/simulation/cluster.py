"""The machines and queues of a simulation, and hypothetical changes of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from job_tracker.catalog.entries import listed
from job_tracker.scheduling.model import (
    DEFAULT_FLAVOR,
    INSTANCES,
    Flavor,
    Limit,
    Node,
    Queue,
    Resources,
    Usage,
)
from job_tracker.scheduling.options import PlannerOptions
from job_tracker.scheduling.simulation.spot import Spot

BEGIN: Final = 1_000_000_000.0
"""The Unix time at which simulations begin, in seconds."""


@dataclass(frozen=True)
class Cluster:
    """The machines and queues of a simulation."""

    flavors: Sequence[Flavor]
    queues: Mapping[str, Queue] = field(default_factory=dict)
    """The declared queues. Jobs may also be in undeclared queues."""
    usage: Mapping[str, Usage] = field(default_factory=dict)
    """The usage of queues before the simulation begins."""
    options: PlannerOptions = field(default_factory=PlannerOptions)
    spot: Spot | None = None
    """The times at which machines are taken away. None: no machine is taken away."""

    @classmethod
    def of(cls, instances: int) -> "Cluster":
        """Return a cluster with one flavor of this number of instances."""
        return cls((Flavor(name=DEFAULT_FLAVOR, capacity={INSTANCES: instances}),))

    def with_queues(self, names: Iterable[str]) -> "Cluster":
        """Return the cluster with additional queues of these names."""
        return replace(self, queues={**{name: Queue(name=name) for name in names}, **self.queues})

    @property
    def instances(self) -> int:
        """The number of instances of all flavors."""
        return self.resources.get(INSTANCES, 0)

    @property
    def resources(self) -> dict[str, int]:
        """The total amount of each resource that every flavor limits."""
        every = [each.capacity for each in self.flavors]
        limited = [name for name in _names(self.flavors) if all(name in capacity for capacity in every)]
        return {name: sum(each.capacity[name] for each in self.flavors) for name in limited}

    @property
    def counts_instances_only(self) -> bool:
        """Whether only `instances` are limited, and machines are not known."""
        return all(set(each.capacity) == {INSTANCES} and not each.nodes for each in self.flavors)


def _names(flavors: Sequence[Flavor]) -> list[str]:
    return list(dict.fromkeys([INSTANCES, *(name for each in flavors for name in each.capacity)]))


@dataclass(frozen=True, slots=True)
class Quota:
    """The amount of a resource that is guaranteed to a queue."""

    queue: str
    amount: int
    flavor: str = ""
    """The flavor of the quota. Empty: the only flavor; if there are several, the default flavor."""
    resource: str = INSTANCES


@dataclass(frozen=True)
class Changes:
    """The hypothetical changes of a cluster."""

    add: Mapping[str, int] = field(default_factory=dict)
    """The number of added instances by flavor, or of added machines if machines are known.

    A negative number removes some.
    """
    quota: Sequence[Quota] = ()
    by_priority: bool = False
    """Whether waiting jobs stop running jobs of their queue that have a lower priority.

    This applies to all queues.
    """
    spot: Spot | None = None
    """The times at which machines are taken away, if they become spot machines. None: no change."""

    def __bool__(self) -> bool:
        return bool(self.add or self.quota or self.by_priority or self.spot)

    def __str__(self) -> str:
        parts = [f"{flavor}{count:+d}" for flavor, count in self.add.items()]
        kinds = {"preempt": self.by_priority, "spot": self.spot}
        return ", ".join(
            [*parts, *map(_shown, self.quota), *(name for name, is_so in kinds.items() if is_so)]
        )

    def applied(self, cluster: Cluster) -> Cluster:
        """Return the cluster with these changes. Raises ValueError if such a cluster is impossible."""
        flavors = {flavor.name: flavor for flavor in cluster.flavors}
        for name, count in self.add.items():
            if name not in flavors and not cluster.counts_instances_only:
                raise ValueError(f"add {name}={count}: there is no such flavor; allowed: {listed(flavors)}")
            flavors[name] = _grown(flavors.get(name) or Flavor(name=name, capacity={INSTANCES: 0}), count)
        kept = tuple(each for each in flavors.values() if each.capacity.get(INSTANCES))
        if not kept:
            raise ValueError("the changes remove all instances; leave at least 1")
        queues = dict(cluster.queues)
        for quota in self.quota:
            queues[quota.queue] = _guaranteed(quota, queues, kept)
        if self.quota:
            _check_sums(queues, kept)
        if self.by_priority:
            queues = {
                name: replace(queue, preemption=replace(queue.preemption, by_priority=True))
                for name, queue in queues.items()
            }
        return replace(cluster, flavors=kept, queues=queues, spot=self.spot or cluster.spot)


def _shown(quota: Quota) -> str:
    what = "/".join(filter(None, (quota.flavor, "" if quota.resource == INSTANCES else quota.resource)))
    return f"quota {quota.queue}={what + '=' if what else ''}{quota.amount}"


def _grown(flavor: Flavor, count: int) -> Flavor:
    """Return the flavor with `count` more instances of average resources, or more machines if machines are
    known.
    """
    if flavor.nodes:
        return _with_nodes(flavor, count)
    before = flavor.capacity.get(INSTANCES, 0)
    after = before + count
    if after < 0:
        raise ValueError(f"add {flavor.name}={count} leaves {after} instances; it must be 0 or more")
    capacity = {name: amount * after // before if before else 0 for name, amount in flavor.capacity.items()}
    return replace(flavor, capacity={**capacity, INSTANCES: after})


def _with_nodes(flavor: Flavor, count: int) -> Flavor:
    """Return the flavor with `count` more machines like the first one.

    If `count` is negative, drop the last machines.
    """
    after = len(flavor.nodes) + count
    if after < 1:
        raise ValueError(f"add {flavor.name}={count} leaves {after} machines; it must be 1 or more")
    more = tuple(Node(name=f"+{place}", capacity=flavor.nodes[0].capacity) for place in range(1, count + 1))
    changed, sign = (more, 1) if count > 0 else (flavor.nodes[after:], -1)
    capacity = {
        name: max(0, amount + sign * sum(node.capacity.get(name, 0) for node in changed))
        for name, amount in flavor.capacity.items()
    }
    return replace(flavor, capacity=capacity, nodes=(flavor.nodes + more)[:after])


def _guaranteed(quota: Quota, queues: Mapping[str, Queue], flavors: Sequence[Flavor]) -> Queue:
    """Return the queue that the quota names, with this quota. Raises ValueError if a name does not exist."""
    if quota.queue not in queues:
        raise ValueError(f"quota: no job is in queue '{quota.queue}'; queues: {listed(queues)}")
    known: dict[str, Resources] = {flavor.name: flavor.capacity for flavor in flavors}
    name = quota.flavor or (flavors[0].name if len(flavors) == 1 else DEFAULT_FLAVOR)
    if name not in known:
        raise ValueError(
            f"{_shown(quota)}: {f'there is no flavor {name}' if quota.flavor else 'name the flavor'}; "
            f"flavors: {listed(known)}"
        )
    if quota.resource not in known[name]:
        raise ValueError(
            f"{_shown(quota)}: flavor {name} has no resource {quota.resource}; allowed: {listed(known[name])}"
        )
    queue = queues[quota.queue]
    limits = {**queue.limits.get(name, {}), quota.resource: Limit(nominal=quota.amount)}
    return replace(queue, limits={**queue.limits, name: limits})


def _check_sums(queues: Mapping[str, Queue], flavors: Sequence[Flavor]) -> None:
    """Raise ValueError if the quotas of a queue's children together exceed the queue's own quota, or if the
    quotas of all top queues together exceed the capacity of a flavor.

    For a queue without its own quota, the sum of its children's quotas counts.
    """
    children: dict[str, list[str]] = {}
    for queue in queues.values():
        children.setdefault(queue.parent, []).append(queue.name)
    ordered = [""]
    for name in ordered:  # the list grows while it is read
        ordered.extend(children.get(name, ()))
    for flavor in flavors:
        for resource, capacity in flavor.capacity.items():
            totals: dict[str, int] = {}
            for name in reversed(ordered):
                limit = queues[name].limits.get(flavor.name, {}).get(resource) if name else None
                own = (limit.nominal if limit else None) if name else capacity
                below = sum(totals[child] for child in children.get(name, ()))
                if own is not None and below > own:
                    of = f"queue {name} has" if name else f"flavor {flavor.name} has"
                    raise ValueError(f"the quotas are {below} {resource} in all; {of} {own}")
                totals[name] = below if own is None else own

"""The flavors with their present capacity.

A flavor that follows the machines of the engine has the capacity of these machines.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol

from job_tracker.backends.base import Inventory, Mark
from job_tracker.common.backoff import Backoff
from job_tracker.common.tasks import repeat
from job_tracker.domain.errors import TrackerError
from job_tracker.domain.machine import INSTANCES, Machine
from job_tracker.scheduling.board import Pool
from job_tracker.scheduling.model import Flavor, Node
from job_tracker.scheduling.tree import Tree

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 10.0
_TOGETHER: Final = 0.2  # seconds in which changes are collected


class _Queues(Protocol):
    @property
    def tree(self) -> Tree: ...


@dataclass(frozen=True, slots=True)
class _Kept:
    """The results for one tree of queues and one state of the machines (`number`).

    `flavors` have the present capacity. `best` is the tree with the largest possible capacity.
    """

    tree: Tree
    number: int
    flavors: tuple[Flavor, ...]
    best: Tree


class FollowedPool:
    """The declared queues, and their flavors with the present capacity of the machines.

    The pool follows changes of the queues and of the machines. While the engine does not answer, the last
    known machines count.
    """

    def __init__(self, queues: _Queues, inventory: Inventory | None = None) -> None:
        """Without an inventory, flavors have their declared capacities."""
        self._queues = queues
        self._inventory = inventory
        self._machines: Mapping[str, Machine] | None = None
        """The machines by name. None: they are not known yet."""
        self._number = 0
        """The number of changes of the machines."""
        self._kept: _Kept | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._renewing: asyncio.TimerHandle | None = None
        self._current()

    @property
    def tree(self) -> Tree:
        """The queues, and their flavors with the largest possible capacity.

        This is the capacity for this service's jobs once all other work on the machines has ended. Work that
        never ends, such as daemons, keeps its resources. A job that does not fit on these flavors can never
        start.
        """
        return self._current().best

    def now(self) -> Pool:
        """Return the flavors with their present capacity, and the queues.

        Both results stay the same objects until something changes.
        """
        current = self._current()
        return current.flavors, current.tree.queues

    def instances(self) -> int:
        """Return the number of instances that may run at present. Safe in any thread."""
        return sum(flavor.capacity.get(INSTANCES, 0) for flavor in self._kept.flavors) if self._kept else 0

    @contextmanager
    def calling(self, on_change: Callable[[], None]) -> Iterator[None]:
        """Within this context, call `on_change` soon after each change of the machines."""
        self._callbacks.append(on_change)
        try:
            yield
        finally:
            self._callbacks.remove(on_change)

    async def follow(self) -> None:
        """Follow the machines until cancelled. If reading them fails, try again later."""
        if self._inventory is not None:
            await repeat(
                self._follow_once,
                Backoff(_FIRST_PAUSE, _LONGEST_PAUSE),
                period=_FIRST_PAUSE,
                failure="the machines cannot be read",
                expected=TrackerError,
            )

    async def _follow_once(self) -> None:
        assert self._inventory is not None, "checked in follow"
        found: dict[str, Machine] = {}
        is_complete = False
        async with aclosing(self._inventory.machines()) as changes:
            async for change in changes:
                if change is Mark.END_OF_SNAPSHOT:
                    self._machines, is_complete = found, True
                    self._renew()
                elif change[1] is None:
                    found.pop(change[0], None)
                else:
                    found[change[0]] = change[1]
                if is_complete and self._renewing is None:
                    # Changes are collected, since there may be many of them.
                    self._renewing = asyncio.get_running_loop().call_later(_TOGETHER, self._renew)

    def _renew(self) -> None:
        self._renewing = None
        self._number += 1
        self._current()
        for callback in self._callbacks:
            callback()

    def _current(self) -> _Kept:
        tree, kept = self._queues.tree, self._kept
        if kept is not None and kept.tree is tree and kept.number == self._number:
            return kept
        declared = tree.pool.flavors
        if self._machines is None or not any(flavor.is_followed for flavor in declared):
            made = _Kept(tree, self._number, tuple(declared), tree)
        else:
            flavors = tuple(_at_present(flavor, self._machines.values()) for flavor in declared)
            best = [_at_best(flavor, self._machines.values()) for flavor in declared]
            # The tree object caches which jobs fit, so it stays the same as long as possible.
            is_same = kept is not None and kept.tree is tree and kept.best.pool.flavors == best
            pool = replace(tree.pool, flavors=best)
            made = _Kept(
                tree, self._number, flavors, kept.best if kept and is_same else replace(tree, pool=pool)
            )
        self._kept = made
        return made


def _at_present(flavor: Flavor, machines: Iterable[Machine]) -> Flavor:
    if not flavor.is_followed:
        return flavor
    own = [machine for machine in machines if machine.flavor == flavor.name]
    return _followed(flavor, own, [(machine.capacity, machine.is_open) for machine in own])


def _at_best(flavor: Flavor, machines: Iterable[Machine]) -> Flavor:
    if not flavor.is_followed:
        return flavor
    own = [machine for machine in machines if machine.flavor == flavor.name]
    return _followed(flavor, own, [(machine.most, True) for machine in own])


def _followed(
    flavor: Flavor, machines: list[Machine], capacities: list[tuple[Mapping[str, int], bool]]
) -> Flavor:
    total: dict[str, int] = {}
    for capacity, is_open in capacities:
        for name, amount in capacity.items():
            total[name] = total.get(name, 0) + (amount if is_open else 0)
    nodes = (
        Node(
            name=machine.name,
            capacity=capacity,
            is_open=is_open,
            labels=machine.labels,
            places=machine.places,
        )
        for machine, (capacity, is_open) in zip(machines, capacities, strict=True)
    )
    return replace(
        flavor,
        capacity=total,
        nodes=tuple(sorted(nodes, key=lambda node: node.name)),
        is_known=True,
    )

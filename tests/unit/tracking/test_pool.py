"""The pool that follows machines: flavors at present and at best."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from job_tracker.backends.base import Machines, Mark
from job_tracker.backends.fake import FakeBackend, FakeMachine, FakeWorld
from job_tracker.common.tasks import background, end
from job_tracker.domain.errors import BackendUnavailable
from job_tracker.domain.machine import Machine
from job_tracker.scheduling.tree import Tree, pool_of, tree_of
from job_tracker.tracking import pool as pool_module
from job_tracker.tracking.pool import FollowedPool
from tests.support.patience import PATIENCE


class Queues:
    """Declared queues that can be replaced."""

    def __init__(self) -> None:
        self.tree: Tree = tree_of(pool_of({"spot": {"instances": "3"}}, 8, followed=["a100"]), {})


def machine(cpu: int, *, taken: int = 0, stays: int = 0, is_open: bool = True) -> FakeMachine:
    return FakeMachine(
        flavor="a100",
        offers={"instances": 10, "cpu": cpu},
        taken={"cpu": taken},
        stays={"cpu": stays},
        is_open=is_open,
    )


class Followed:
    """A pool that is kept up to date."""

    def __init__(self, pool: FollowedPool) -> None:
        self.pool = pool
        self.changed = asyncio.Event()

    async def until(self, condition: Callable[[FollowedPool], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition(self.pool):
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def following(pool: FollowedPool) -> AsyncIterator[Followed]:
    made = Followed(pool)
    with pool.calling(made.changed.set):
        task = background(pool.follow(), "machines")
        yield made
        await end(task)


def capacity(pool: FollowedPool) -> int | None:
    spot, a100 = pool.now()[0]
    assert spot.capacity == {"instances": 3}
    return a100.capacity.get("cpu") if a100.is_known else None


async def test_the_flavor_has_what_its_machines_have() -> None:
    world = FakeWorld()
    world.put_machine("a", machine(8, taken=2, stays=1))
    world.put_machine("b", machine(8, is_open=False))
    world.put_machine("other", FakeMachine(flavor="other", offers={"instances": 5, "cpu": 64}))
    pool = FollowedPool(Queues(), FakeBackend(world))
    assert capacity(pool) is None
    async with following(pool) as followed:
        await followed.until(lambda pool: capacity(pool) == 5)
        _, a100 = pool.now()[0]
        assert [(node.name, node.is_open, node.capacity["cpu"]) for node in a100.nodes] == [
            ("a", True, 5),
            ("b", False, 8),
        ]
        _, best = pool.tree.pool.flavors
        assert best.capacity == {"instances": 20, "cpu": 15}
        assert all(node.is_open for node in best.nodes)
        assert pool.instances() == 3 + 10


async def test_it_keeps_up_with_changes_and_with_new_queues() -> None:
    world, queues = FakeWorld(), Queues()
    pool = FollowedPool(queues, FakeBackend(world))
    async with following(pool) as followed:
        await followed.until(lambda pool: pool.now()[0][1].is_known)
        assert capacity(pool) is None or pool.now()[0][1].nodes == ()
        world.put_machine("a", machine(8))
        await followed.until(lambda pool: capacity(pool) == 8)
        world.put_machine("a", machine(8, taken=3))
        await followed.until(lambda pool: capacity(pool) == 5)
        world.put_machine("a", None)
        await followed.until(lambda pool: pool.now()[0][1].nodes == ())
        queues.tree = tree_of(pool_of({}, 4), {})
        assert pool.now()[0][0].capacity == {"instances": 4}
        assert pool.tree is queues.tree


async def test_what_does_not_change_stays_the_same_object() -> None:
    world = FakeWorld()
    world.put_machine("a", machine(8))
    pool = FollowedPool(Queues(), FakeBackend(world))
    async with following(pool) as followed:
        await followed.until(lambda pool: capacity(pool) == 8)
        flavors, tree = pool.now()[0], pool.tree
        assert pool.now()[0] is flavors
        world.put_machine("a", machine(8, taken=1))
        await followed.until(lambda pool: capacity(pool) == 7)
        assert pool.tree is tree  # others may end, so what fits ever has not changed
        world.put_machine("b", machine(8))
        await followed.until(lambda pool: capacity(pool) == 15)
        assert pool.tree is not tree


class Scripted:
    """An inventory that yields or raises what the test puts."""

    def __init__(self) -> None:
        self._items: asyncio.Queue[tuple[str, Machine | None] | Mark | Exception] = asyncio.Queue()

    def put(self, *items: tuple[str, Machine | None] | Mark | Exception) -> None:
        for item in items:
            self._items.put_nowait(item)

    async def machines(self) -> Machines:
        while True:
            item = await self._items.get()
            if isinstance(item, Exception):
                raise item
            yield item


async def test_a_broken_watch_is_resumed_and_meanwhile_the_last_machines_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_module, "_FIRST_PAUSE", 0.01)
    inventory = Scripted()
    pool = FollowedPool(Queues(), inventory)
    async with following(pool) as followed:
        inventory.put(BackendUnavailable("no answer"))
        inventory.put(("a", machine(8).seen("a")), Mark.END_OF_SNAPSHOT)
        await followed.until(lambda pool: capacity(pool) == 8)
        inventory.put(BackendUnavailable("broken off"), ("b", machine(16).seen("b")))
        inventory.put(("c", machine(1).seen("c")), ("c", None))
        assert capacity(pool) == 8
        inventory.put(Mark.END_OF_SNAPSHOT)
        await followed.until(lambda pool: capacity(pool) == 16)
        assert [node.name for node in pool.now()[0][1].nodes] == ["b"]


async def test_without_an_inventory_capacities_are_as_declared() -> None:
    queues = Queues()
    pool = FollowedPool(queues)
    await pool.follow()
    assert pool.now() == (queues.tree.pool.flavors, queues.tree.queues)
    assert pool.tree is queues.tree

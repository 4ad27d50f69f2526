"""The contract of Inventory: the machines of an engine, and what is free there for the service."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import TypeVar

import pytest

from job_tracker.backends.base import Inventory, Mark
from job_tracker.domain.group import Place
from job_tracker.domain.machine import Machine
from tests.support.machines import CPUS, FLAVOR, GPUS, PODS, ClusterMachines, FakeMachines, Machines

T = TypeVar("T")
_SECONDS = 60


@pytest.fixture(params=["fake", "kubernetes"])
async def machines(request: pytest.FixtureRequest) -> AsyncIterator[Machines]:
    made: Machines = FakeMachines()
    if request.param == "kubernetes":
        made = ClusterMachines(request.getfixturevalue("cluster"), request.getfixturevalue("namespace"))
    yield made
    await made.close()


class Reader:
    """Reads an inventory, and keeps its last state."""

    def __init__(self, inventory: Inventory) -> None:
        self._changes = inventory.machines()
        self.known: dict[str, Machine] = {}

    async def snapshot(self) -> dict[str, Machine]:
        """Read up to the mark."""
        async with asyncio.timeout(_SECONDS):
            while (change := await anext(self._changes)) is not Mark.END_OF_SNAPSHOT:
                self._take(change)
        return self.known

    async def until(self, condition: Callable[[dict[str, Machine]], bool]) -> dict[str, Machine]:
        """Read changes until the condition holds."""
        async with asyncio.timeout(_SECONDS):
            while not condition(self.known):
                change = await anext(self._changes)
                assert change is not Mark.END_OF_SNAPSHOT
                self._take(change)
        return self.known

    def _take(self, change: object) -> None:
        assert isinstance(change, tuple)
        name, machine = change
        if machine is None:
            self.known.pop(name, None)
        else:
            assert machine.name == name
            self.known[name] = machine

    async def aclose(self) -> None:
        await self._changes.aclose()


def reading(machines: Machines) -> "aclosing[Reader]":
    return aclosing(Reader(machines.open()))


async def test_a_snapshot_has_all_machines_with_what_they_offer(machines: Machines) -> None:
    machines.add("a", zone="x")
    machines.add("b")
    async with reading(machines) as reader:
        await reader.snapshot()
        known = await reader.until(
            lambda known: len(known) == 2 and all(each.is_open for each in known.values())
        )
    found = known[machines.full_name("a")]
    assert found.flavor == FLAVOR
    assert {**found.capacity, "memory": 0} == {
        "instances": PODS,
        "cpu": 1000 * CPUS,
        "nvidia.com/gpu": GPUS,
        "memory": 0,
    }
    assert found.most == found.capacity
    assert found.places[Place.MACHINE] == machines.full_name("a")
    assert found.places[Place.ZONE] == "x"
    assert Place.ZONE not in known[machines.full_name("b")].places


async def test_without_machines_the_snapshot_is_empty(machines: Machines) -> None:
    async with reading(machines) as reader:
        assert await reader.snapshot() == {}


async def test_machines_come_and_go(machines: Machines) -> None:
    machines.add("a")
    async with reading(machines) as reader:
        await reader.snapshot()
        machines.add("b")
        await reader.until(lambda known: machines.full_name("b") in known)
        machines.remove("a")
        await reader.until(lambda known: machines.full_name("a") not in known)


async def test_what_others_request_is_not_free_until_they_end(machines: Machines) -> None:
    machines.add("a")
    name = machines.full_name("a")
    async with reading(machines) as reader:
        await reader.snapshot()
        machines.take("a", 3)
        known = await reader.until(lambda known: known[name].capacity["cpu"] == 1000 * (CPUS - 3))
        assert known[name].capacity["instances"] == PODS - 1
        assert known[name].most["cpu"] == 1000 * CPUS  # these instances may end
        machines.give_back("a")
        known = await reader.until(lambda known: known[name].capacity["cpu"] == 1000 * CPUS)
        assert known[name].capacity["instances"] == PODS


async def test_what_stays_on_a_machine_is_never_free(machines: Machines) -> None:
    machines.add("a")
    machines.take("a", 1, stays=True)
    machines.take("a", 2)
    name = machines.full_name("a")
    async with reading(machines) as reader:
        await reader.snapshot()
        known = await reader.until(lambda known: known[name].capacity["cpu"] == 1000 * (CPUS - 3))
    assert known[name].most["cpu"] == 1000 * (CPUS - 1)
    assert known[name].most["instances"] == PODS - 1


async def test_a_machine_is_closed_and_opened_again(machines: Machines) -> None:
    machines.add("a")
    name = machines.full_name("a")
    async with reading(machines) as reader:
        await reader.snapshot()
        await reader.until(lambda known: known[name].is_open)
        machines.set_open("a", False)
        known = await reader.until(lambda known: not known[name].is_open)
        assert known[name].most["cpu"] == 1000 * CPUS
        machines.set_open("a", True)
        await reader.until(lambda known: known[name].is_open)


async def test_each_reader_begins_with_a_snapshot_of_its_own(machines: Machines) -> None:
    machines.add("a")
    async with reading(machines) as first:
        await first.snapshot()
        machines.take("a", 2)
        name = machines.full_name("a")
        await first.until(lambda known: known[name].capacity["cpu"] == 1000 * (CPUS - 2))
        async with reading(machines) as second:
            await second.snapshot()
            await second.until(lambda known: known[name].capacity["cpu"] == 1000 * (CPUS - 2))
        machines.give_back("a")
        await first.until(lambda known: known[name].capacity["cpu"] == 1000 * CPUS)

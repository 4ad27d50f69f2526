"""Instances on machines: few machines, near to each other, and only where they may run."""

from collections import Counter

import pytest

from job_tracker.domain.group import Place
from job_tracker.scheduling.model import Node, Where
from job_tracker.scheduling.packing import Demand, Room, pack


def room(name: str, *free: int, rack: str = "", zone: str = "", **labels: str) -> Room:
    places = {Place.RACK: rack, Place.ZONE: zone}
    given = {place: value for place, value in places.items() if value}
    node = Node(name=name, capacity={}, labels=labels, places={Place.MACHINE: name, **given})
    return Room(node, free)


def counted(nodes: tuple[str, ...] | None) -> dict[str, int] | None:
    return None if nodes is None else dict(Counter(nodes))


def test_a_gang_goes_to_the_smallest_machine_that_has_room_for_all_of_it() -> None:
    rooms = [room("large", 8), room("small", 4), room("tiny", 1)]
    assert pack([Demand(3, (1,))], rooms) == ("small",) * 3


def test_a_gang_takes_as_few_machines_as_possible() -> None:
    rooms = [room("a", 1), room("b", 1), room("c", 4), room("d", 2)]
    assert counted(pack([Demand(6, (1,))], rooms)) == {"c": 4, "d": 2}


def test_a_gang_stays_in_one_rack_or_else_in_one_zone() -> None:
    rooms = [
        room("a", 2, rack="1", zone="x"),
        room("b", 2, rack="2", zone="x"),
        room("c", 2, rack="2", zone="x"),
        room("d", 4, rack="3", zone="y"),
        room("e", 1, rack="3", zone="y"),
    ]
    assert counted(pack([Demand(4, (1,))], rooms)) == {"d": 4}
    assert counted(pack([Demand(4, (1,))], rooms[:3])) == {"b": 2, "c": 2}
    assert counted(pack([Demand(6, (1,))], rooms)) == {"a": 2, "b": 2, "c": 2}


def test_instances_go_only_to_machines_with_the_labels_that_they_ask_for() -> None:
    rooms = [room("a", 8), room("b", 2, disk="ssd")]
    wanted = Where(selector=(("disk", "ssd"),))
    assert pack([Demand(2, (1,), wanted)], rooms) == ("b", "b")
    assert pack([Demand(3, (1,), wanted)], rooms) is None


@pytest.mark.parametrize(("strict", "expected"), [(True, None), (False, {"a": 2, "b": 2})])
def test_near_is_a_wish_unless_it_is_strict(strict: bool, expected: dict[str, int] | None) -> None:
    rooms = [room("a", 2), room("b", 2)]
    where = Where(near=Place.MACHINE, strict=strict)
    assert counted(pack([Demand(4, (1,), where)], rooms)) == expected


@pytest.mark.parametrize(("strict", "expected"), [(True, None), (False, {"a": 4})])
def test_apart_is_a_wish_unless_it_is_strict(strict: bool, expected: dict[str, int] | None) -> None:
    rooms = [room("a", 8), room("b", 8), room("c", 8)]
    where = Where(apart=Place.MACHINE, strict=strict)
    assert counted(pack([Demand(3, (1,), where)], rooms)) == {"a": 1, "b": 1, "c": 1}
    assert counted(pack([Demand(4, (1,), where)], rooms)) == expected


def test_machines_of_one_rack_apart_from_each_other() -> None:
    rooms = [room("a", 8, rack="1"), room("b", 8, rack="2"), room("c", 8, rack="2")]
    where = Where(near=Place.RACK, apart=Place.MACHINE, strict=True)
    assert counted(pack([Demand(2, (1,), where)], rooms)) == {"b": 1, "c": 1}


def test_a_place_without_a_name_is_apart_from_no_other() -> None:
    where = Where(apart=Place.RACK, strict=True)
    assert pack([Demand(2, (1,), where)], [room("a", 8), room("b", 8)]) is None


def test_nothing_starts_on_a_closed_machine() -> None:
    closed = Room(Node(name="a", capacity={}, is_open=False), (8,))
    assert pack([Demand(1, (1,))], [closed]) is None


def test_other_roles_follow_the_trainers_in_the_answer() -> None:
    rooms = [room("a", 4, 0), room("b", 4, 2)]
    trainers, servers = Demand(2, (1, 1)), Demand(3, (1, 0))
    assert pack([servers, trainers], rooms) == ("a", "a", "a", "b", "b")


def test_a_machine_with_less_than_nothing_free_takes_nothing() -> None:
    assert pack([Demand(1, (1,))], [room("a", -1), room("b", 1)]) == ("b",)

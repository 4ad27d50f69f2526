"""Simulations of changed machines and queues."""

import pytest

from job_tracker.scheduling.model import Flavor, Limit, Node, Queue
from job_tracker.scheduling.simulation.cluster import Changes, Cluster, Quota

A100 = Flavor(name="a100", capacity={"instances": 4, "nvidia.com/gpu": 32})
KNOWN = Flavor(
    name="known",
    capacity={"instances": 20, "cpu": 8000},
    nodes=(
        Node(name="1", capacity={"instances": 10, "cpu": 4000}),
        Node(name="2", capacity={"instances": 10, "cpu": 4000}),
    ),
)
QUEUES = {
    "team": Queue(name="team", limits={"a100": {"nvidia.com/gpu": Limit(nominal=16)}}),
    "vision": Queue(name="vision", parent="team", weight=3),
    "speech": Queue(name="speech", parent="team"),
}


def test_more_instances_have_what_the_others_have() -> None:
    changed = Changes({"a100": 2}).applied(Cluster((A100,)))
    assert changed.resources == {"instances": 6, "nvidia.com/gpu": 48}


def test_where_machines_are_known_machines_are_added_and_taken_away() -> None:
    more = Changes({"known": 1}).applied(Cluster((KNOWN,)))
    assert (len(more.flavors[0].nodes), more.resources) == (3, {"instances": 30, "cpu": 12000})
    less = Changes({"known": -1}).applied(Cluster((KNOWN,)))
    assert [node.name for node in less.flavors[0].nodes] == ["1"]
    assert less.resources == {"instances": 10, "cpu": 4000}


def test_a_quota_keeps_the_weight_and_the_place_of_the_queue() -> None:
    quota = Quota("vision", 8, "a100", "nvidia.com/gpu")
    changed = Changes(quota=[quota]).applied(Cluster((A100, KNOWN), QUEUES))
    vision = changed.queues["vision"]
    assert (vision.weight, vision.parent) == (3, "team")
    assert vision.limits["a100"]["nvidia.com/gpu"].nominal == 8
    assert str(Changes({"a100": -1}, [quota])) == "a100-1, quota vision=a100/nvidia.com/gpu=8"


def test_a_resource_that_a_flavor_does_not_limit_is_not_counted() -> None:
    assert Cluster((A100, KNOWN)).resources == {"instances": 24}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (Changes({"h100": 1}), "add h100=1: there is no such flavor; allowed: a100, known"),
        (Changes({"known": -2}), "add known=-2 leaves 0 machines; it must be 1 or more"),
        (Changes(quota=[Quota("vision", 1)]), "quota vision=1: name the flavor; flavors: a100, known"),
        (Changes(quota=[Quota("vision", 1, "spot")]), "there is no flavor spot; flavors: a100, known"),
        (
            Changes(quota=[Quota("vision", 1, "a100", "cpu")]),
            "flavor a100 has no resource cpu; allowed: inst",
        ),
        (
            Changes(quota=[Quota("vision", 17, "a100", "nvidia.com/gpu")]),
            "the quotas are 17 nvidia.com/gpu in all; queue team has 16",
        ),
    ],
)
def test_what_ifs_that_do_not_fit_are_refused(changes: Changes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        changes.applied(Cluster((A100, KNOWN), QUEUES))

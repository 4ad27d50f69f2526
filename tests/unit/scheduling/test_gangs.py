"""The needs of a job, as the planner counts them."""

from dataclasses import replace

import pytest

from job_tracker.domain.group import InstanceSpec
from job_tracker.domain.policies import Elastic
from job_tracker.scheduling.gangs import gang_of, listed_amounts, parts_of, quantity_of, units
from job_tracker.scheduling.model import Expected, Part
from tests.support.jobs import spec


@pytest.mark.parametrize(
    ("resource", "quantity", "expected"),
    [
        ("cpu", "500m", 500),
        ("cpu", "2", 2000),
        ("cpu", "0.5", 500),
        ("memory", "4Gi", 4 << 30),
        ("memory", "1.5k", 1500),
        ("nvidia.com/gpu", "8", 8),
        ("instances", "12", 12),
        ("nvidia.com/gpu", "100m", 1),
    ],
)
def test_quantities_become_whole_units(resource: str, quantity: str, expected: int) -> None:
    assert units(resource, quantity) == expected


def test_a_text_that_is_no_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="'4Gb' is not a quantity"):
        units("memory", "4Gb")


def test_master_and_workers_are_one_part_and_every_instance_counts() -> None:
    wanted = spec(instances=4)
    trainers = InstanceSpec(resources={"cpu": "1500m", "memory": "2Gi", "nvidia.com/gpu": "1"})
    group = replace(wanted.group, trainers=trainers)
    each = {"instances": 1, "cpu": 1500, "memory": 2 << 30, "nvidia.com/gpu": 1}
    assert parts_of(group) == (Part(4, each),)


def test_trainers_come_first_and_other_roles_follow_in_the_order_of_ranks() -> None:
    wanted = spec(roles={"master": 1, "ps": 2, "worker": 3, "evaluator": 1})
    group = replace(
        wanted.group,
        trainers=InstanceSpec(resources={"nvidia.com/gpu": "8"}),
        others={"evaluator": InstanceSpec(), "ps": InstanceSpec(resources={"cpu": "2"})},
    )
    assert parts_of(group) == (
        Part(4, {"instances": 1, "nvidia.com/gpu": 8}),
        Part(2, {"instances": 1, "cpu": 2000}),
        Part(1, {"instances": 1}),
    )


def test_a_role_without_instances_is_no_part() -> None:
    wanted = spec(roles={"master": 1, "ps": 0})
    assert parts_of(replace(wanted.group, others={"ps": InstanceSpec()})) == (Part(1, {"instances": 1}),)


def test_a_gang_has_the_queue_and_the_priority_of_its_job() -> None:
    expected = Expected(median=60, high=90)
    gang = gang_of(7, spec(queue="research", priority=100), expected)
    assert (gang.job_id, gang.queue, gang.priority, gang.expected) == (7, "research", 100, expected)
    assert gang.least == 0
    assert gang.flavors == ()


def test_an_elastic_gang_starts_with_its_smallest_number_of_instances() -> None:
    assert gang_of(1, spec(instances=4, elastic=Elastic(min_instances=2)), None).least == 2


def test_alike_jobs_share_their_parts() -> None:
    assert gang_of(1, spec(instances=2), None).parts[0] is gang_of(2, spec(instances=2), None).parts[0]


@pytest.mark.parametrize(
    ("resource", "quantity"),
    [("cpu", "500m"), ("cpu", "2"), ("memory", "4Gi"), ("memory", "1537Mi"), ("memory", "3"), ("gpu", "8")],
)
def test_a_quantity_is_written_as_it_is_read(resource: str, quantity: str) -> None:
    assert quantity_of(resource, units(resource, quantity)) == quantity


def test_amounts_are_listed_without_those_that_are_nothing() -> None:
    assert listed_amounts({"instances": 2, "memory": 2**30, "gpu": 0}) == "2 instances, 1Gi memory"

"""The queue and the priority of a requested job, and the machines on which it may run."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from job_tracker.admission.queues import (
    OneQueue,
    check_fit,
    expected_of,
    flavor_of,
    priority_of,
    queue_of,
)
from job_tracker.domain.errors import InvalidField, UnknownReference
from job_tracker.domain.group import InstanceOptions
from job_tracker.scheduling.recipes import QueueRecipe
from job_tracker.scheduling.tree import Tree, pool_of, tree_of
from tests.support.jobs import spec

POOL = pool_of({}, 8)


def tree(**tables: dict[str, Any]) -> Tree:
    return tree_of(POOL, {name: QueueRecipe.model_validate(table) for name, table in tables.items()})


TEAMS = tree(
    teams={"projects": ["vision", "speech"]},
    vision={"parent": "teams", "projects": ["vision"], "max_priority": "normal"},
    shared={"parent": "teams"},
    low={"max_priority": "low"},
)


def test_a_request_without_a_queue_waits_in_that_of_its_project() -> None:
    assert queue_of(TEAMS, "vision", "") == "vision"
    assert queue_of(TEAMS, "speech", "") == "default"
    assert queue_of(TEAMS, "speech", "shared") == "shared"


@pytest.mark.parametrize("name", ["gone", "vision", "x" * 300, "\n"])
def test_a_queue_that_the_project_may_not_use_does_not_exist_for_it(name: str) -> None:
    with pytest.raises(UnknownReference) as refused:
        queue_of(TEAMS, "speech", name)
    assert refused.value.field == "queue"
    assert str(refused.value).endswith("doesn't exist; project speech may use: default, low, shared")


def test_jobs_do_not_wait_in_a_parent_of_queues() -> None:
    with pytest.raises(
        InvalidField, match="'teams' is not allowed: it is the parent of other queues; project"
    ):
        queue_of(TEAMS, "vision", "teams")
    with pytest.raises(UnknownReference, match="'teams' doesn't exist"):
        queue_of(TEAMS, "other", "teams")


def test_a_project_without_a_default_queue_has_to_name_one() -> None:
    made = tree(default={"projects": ["vision"]}, b={})
    with pytest.raises(
        InvalidField, match=r"queue: must not be empty: .* may not use 'default'; .* may use: b$"
    ):
        queue_of(made, "speech", "")


def test_a_queue_with_a_problem_takes_no_jobs() -> None:
    broken = tree_of(POOL, {}, also={"a": QueueRecipe(parent="gone")})
    with pytest.raises(InvalidField, match=r"'a' cannot be used: a\.parent: 'gone' doesn't exist"):
        queue_of(broken, "vision", "a")


@pytest.mark.parametrize(
    ("queue", "sent", "number"),
    [
        ("default", "", 0),
        ("default", "high", 100),
        ("default", "low", -100),
        ("default", "-7", -7),
        ("default", "100", 100),
        ("vision", "normal", 0),
        ("low", "", -100),
    ],
)
def test_a_priority_is_the_number_of_its_class(queue: str, sent: str, number: int) -> None:
    assert priority_of(TEAMS, queue, sent) == number


@pytest.mark.parametrize(
    ("queue", "sent", "message"),
    [
        ("default", "top", "priority: 'top' is not a priority; allowed: high, low, normal"),
        ("default", "101", "priority: '101' is not a priority; allowed: high, low, normal"),
        ("default", "1e2", "'1e2' is not a priority"),
        ("default", "9" * 400, "is not a priority"),
        ("vision", "high", "priority: 'high' is not allowed in queue vision; allowed: low, normal"),
        ("vision", "1", "priority: '1' is not allowed in queue vision; allowed: low, normal"),
    ],
)
def test_a_priority_above_that_of_the_queue_is_refused(queue: str, sent: str, message: str) -> None:
    with pytest.raises(InvalidField) as refused:
        priority_of(TEAMS, queue, sent)
    assert message in str(refused.value)


def test_an_expected_duration_is_more_than_nothing() -> None:
    assert expected_of(None) is None
    assert expected_of(90) == timedelta(seconds=90)
    for seconds in (0, 1e-9, -1, 1e15):
        with pytest.raises(InvalidField, match=r"^expected: "):
            expected_of(seconds)


def test_a_job_that_can_never_start_is_refused_with_the_largest_that_can() -> None:
    small = {"quotas": {"default": {"nominal": {"instances": 3}, "borrow": {"instances": 1}}}}
    made = tree(a=small)
    check_fit(made, spec(instances=4, queue="a"))
    with pytest.raises(InvalidField) as refused:
        check_fit(made, spec(instances=5, queue="a"))
    message = str(refused.value)
    assert message.startswith(
        "parameters.PARALLEL_INSTANCES: The job needs 5 instances for 5 trainers. The largest"
    )
    assert "queue a is 4 trainers" in message
    with pytest.raises(InvalidField, match="is 4 trainers"):
        check_fit(made, spec(instances=5, queue="a"))


def test_a_job_of_which_nothing_fits_is_refused_with_what_it_asked_for() -> None:
    flavor = pool_of({"a100": {"instances": "8", "nvidia.com/gpu": "4"}}, 8)
    asked = {"resources": {"nvidia.com/gpu": "8"}}
    large = spec(pod_options=asked)
    trainers = replace(large.group.trainers, resources=asked["resources"])
    large = replace(large, group=replace(large.group, trainers=trainers))
    with pytest.raises(InvalidField, match=r"^pod_options\.resources: .* not even one trainer of it fits"):
        check_fit(tree_of(flavor, {}), large)
    with pytest.raises(InvalidField, match=r"^queue: "):
        check_fit(tree_of(flavor, {}), replace(large, pod_options=InstanceOptions()))


MIXED = tree_of(
    pool_of({"a100": {"instances": "8", "nvidia.com/gpu": "8"}, "spot": {"instances": "20"}}, 8), {}
)


def test_a_flavor_is_one_of_those_that_there_are() -> None:
    assert flavor_of(MIXED, "") == ""
    assert flavor_of(MIXED, "spot") == "spot"
    for name in ("default", "Spot", "x" * 300):
        with pytest.raises(UnknownReference, match=r"^flavor: .* doesn't exist; allowed: a100, spot$"):
            flavor_of(MIXED, name)


def test_a_job_fits_on_the_flavor_that_it_asks_for_or_learns_on_which_it_would() -> None:
    small = spec(instances=9)
    check_fit(MIXED, small)
    check_fit(MIXED, replace(small, flavor="spot"))
    with pytest.raises(
        InvalidField, match=r"^parameters\.PARALLEL_INSTANCES: .* is 8 trainers, on the flavor a100\. .* spot"
    ):
        check_fit(MIXED, replace(small, flavor="a100"))


def test_a_flavor_without_the_devices_of_a_job_is_refused_with_those_that_have_them() -> None:
    asked = {"resources": {"nvidia.com/gpu": "1"}}
    job = spec(pod_options=asked)
    trainers = replace(job.group.trainers, resources=asked["resources"])
    job = replace(job, group=replace(job.group, trainers=trainers))
    check_fit(MIXED, job)
    with pytest.raises(InvalidField) as refused:
        check_fit(MIXED, replace(job, flavor="spot"))
    assert str(refused.value) == (
        "flavor: The job needs 1 instance, 1 nvidia.com/gpu, and not even one trainer of it fits in the "
        "capacity and the quota of the queue default, on the flavor spot. Ask for less in each instance, for "
        "the flavor a100, or raise the capacity or the quota."
    )


def test_without_queues_there_is_one_with_the_capacity() -> None:
    one = OneQueue(8)
    assert queue_of(one.tree, "any", "") == "default"
    check_fit(one.tree, spec(instances=8))

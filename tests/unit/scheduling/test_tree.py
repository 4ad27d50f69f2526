"""The tree of queues: refused trees, and the planner's view of the tree."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from job_tracker.scheduling.model import Flavor, Limit, PreemptionRules, Queue
from job_tracker.scheduling.recipes import QueueRecipe
from job_tracker.scheduling.tree import Tree, changed, pool_of, tree_of

POOL = pool_of(
    {"a100": {"instances": "8", "cpu": "64", "nvidia.com/gpu": "64"}, "spot": {"instances": "100"}}, 8
)


def recipes(**tables: dict[str, Any]) -> dict[str, QueueRecipe]:
    return {name.replace("_", "-"): QueueRecipe.model_validate(table) for name, table in tables.items()}


def quota(instances: int, **more: Any) -> dict[str, Any]:
    return {"a100": {"nominal": {"instances": instances}, **more}}


def tree(**tables: dict[str, Any]) -> Tree:
    return tree_of(POOL, recipes(**tables))


def test_without_configuration_there_is_one_flavor_and_one_queue_for_all_projects() -> None:
    pool = pool_of({}, 8)
    found = tree_of(pool, {})
    assert pool.flavors == (Flavor(name="default", capacity={"instances": 8}),)
    assert found.queues == {"default": Queue(name="default")}
    assert found.default_of("any") == "default"
    assert found.of_project("any") == ["default"]


def test_a_queue_becomes_what_the_planner_sees() -> None:
    found = tree(
        teams={"quotas": {"a100": {"nominal": {"cpu": "2", "nvidia.com/gpu": 16}}}},
        vision={
            "parent": "teams",
            "weight": 3,
            "quotas": {
                "a100": {
                    "nominal": {"cpu": "500m", "nvidia.com/gpu": 8},
                    "borrow": {"nvidia.com/gpu": 4},
                    "lend": {"cpu": 0},
                }
            },
            "max_running": 5,
            "max_queued": 6,
            "max_priority": "high",
        },
    )
    assert found.queues["vision"] == Queue(
        name="vision",
        parent="teams",
        weight=3,
        limits={
            "a100": {
                "cpu": Limit(nominal=500, lend=0),
                "nvidia.com/gpu": Limit(nominal=8, borrow=4),
            }
        },
        max_running=5,
        max_queued=6,
        max_priority=100,
    )


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"a": {"parent": "b"}}, "a.parent: 'b' doesn't exist; allowed: a"),
        ({"a": {"parent": "a"}}, "a.parent: 'a' is not allowed: the parents form a cycle, a → a"),
        (
            {"a": {"parent": "b"}, "b": {"parent": "c"}, "c": {"parent": "a"}},
            "a.parent: 'b' is not allowed: the parents form a cycle, a → b → c → a",
        ),
        ({"a": {"parent": "default"}}, "a.parent: 'default' is not allowed: jobs that name no queue wait"),
        ({"a": {"quotas": {"h100": {"nominal": {"cpu": 1}}}}}, "a.quotas.h100: there is no such flavor; "),
        (
            {"a": {"quotas": {"spot": {"nominal": {"cpu": 1}}}}},
            "a.quotas.spot.nominal.cpu: the flavor has no such resource; allowed: instances",
        ),
        ({"a": {"max_priority": "top"}}, "a.max_priority: 'top' doesn't exist; allowed: high, low, normal"),
        (
            {"a": {"quotas": quota(5)}, "b": {"quotas": quota(4)}},
            "b.quotas.a100.nominal.instances: a, b and the queues below are guaranteed 9 in all; at most 8",
        ),
        (
            {"top": {}, "a": {"parent": "top", "quotas": quota(9)}},
            "top.quotas.a100.nominal.instances: top and the queues below are guaranteed 9 in all",
        ),
        (
            {"top": {"quotas": quota(3)}, "a": {"parent": "top", "quotas": quota(4)}},
            "a.quotas.a100.nominal.instances: a and the queues below are guaranteed 4 in all; at most 3 is "
            "allowed (top.quotas.a100.nominal.instances)",
        ),
        (
            {"top": {"max_queued": 1}, "a": {"parent": "top"}},
            "top.max_queued: not allowed, since no jobs wait",
        ),
    ],
)
def test_a_tree_that_cannot_be_is_refused_with_the_field(
    tables: dict[str, dict[str, Any]], message: str
) -> None:
    with pytest.raises(ValueError, match=r"^\w+\.") as refused:
        tree(**tables)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    "table",
    [
        {"weight": -1},
        {"weight": 0},
        {"weight": float("nan")},
        {"quotas": {"a100": {"nominal": {"instances": "0.5"}}}},
        {"quotas": {"a100": {"nominal": {"wheels": 1}}}},
        {"quotas": {"a100": {"nominal": {"cpu": -1}}}},
        {"quotas": {"a100": {"nominal": {"cpu": 1}, "borrow": {"memory": 1}}}},
        {"max_running": -1},
        {"projects": ["Not A Project"]},
        {"parent": "no/name"},
    ],
)
def test_bad_values_of_a_queue_are_refused(table: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # each with its own words
        QueueRecipe.model_validate(table)


def test_a_quota_may_be_all_of_the_capacity() -> None:
    found = tree(a={"quotas": quota(8)})
    assert found.queues["a"].limits["a100"]["instances"] == Limit(nominal=8)


def test_projects_are_those_of_the_nearest_queue_that_lists_any() -> None:
    found = tree(
        teams={"projects": ["red", "blue"]},
        shared={"parent": "teams"},
        red={"parent": "teams", "projects": ["red"]},
        open={},
    )
    assert found.of_project("red") == ["default", "open", "red", "shared"]
    assert found.of_project("blue") == ["default", "open", "shared"]
    assert not found.allows("teams", "red"), "a cohort takes no jobs"
    assert {name: queue.project for name, queue in found.queues.items()} == {
        "teams": "", "shared": "", "red": "red", "open": "", "default": ""
    }  # fmt: skip
    assert tree(a={"projects": ["red"]}, b={"parent": "a"}).queues["b"].project == "red"


def test_the_default_queue_of_a_project_is_the_first_that_lists_it() -> None:
    found = tree(
        teams={"projects": ["red"]}, z={"projects": ["red"]}, b={"parent": "teams", "projects": ["red"]}
    )
    assert found.default_of("red") == "b"
    assert found.default_of("blue") == "default"


def test_the_highest_priority_is_the_lowest_limit_up_the_tree() -> None:
    found = tree(top={"max_priority": "normal"}, a={"parent": "top", "max_priority": "high"}, b={})
    assert found.max_priority_of("a") == 0
    assert found.max_priority_of("b") is None


def test_an_accepted_queue_that_does_not_fit_any_more_stays_with_its_problem() -> None:
    """The queue's jobs still run, and other queues are not affected."""
    found = tree_of(
        POOL,
        recipes(file={"quotas": quota(6)}),
        also=recipes(
            big={"quotas": quota(4), "weight": 2}, lost={"parent": "gone"}, good={}, child={"parent": "good"}
        ),
    )
    assert found.problems.keys() == {"big", "lost"}
    assert found.problems["lost"].startswith("lost.parent: 'gone' doesn't exist")
    assert found.queues["big"] == Queue(name="big", weight=2)
    assert found.queues["child"].parent == "good"


def test_a_cohort_with_queues_cannot_be_removed() -> None:
    found = tree(top={}, a={"parent": "top"})
    with pytest.raises(ValueError, match=r"^a\.parent: 'top' doesn't exist"):
        changed(found, "top", None)
    assert changed(found, "a", None).queues.keys() == {"default", "top"}


def test_a_queue_has_the_rules_of_preemption_of_its_parent_unless_it_sets_its_own() -> None:
    found = tree(
        top={"preemption": {"by_priority": True, "min_runtime": "PT5M", "protected": "high"}},
        below={"parent": "top", "preemption": {"reclaim": False, "max_preemptions": 0, "min_runtime": 60}},
        deep={"parent": "top", "preemption": {"resize_period": 0}},
    )
    top = PreemptionRules(by_priority=True, min_runtime=300.0, protected=100)
    assert found.queues["deep"].preemption == replace(top, resize_period=0.0)
    assert found.queues["top"].preemption == top
    assert found.queues["below"].preemption == replace(
        top, reclaim=False, max_preemptions=0, min_runtime=60.0
    )


def test_a_class_that_protects_must_exist() -> None:
    with pytest.raises(
        ValueError, match=r"^a.preemption.protected: 'urgent' doesn't exist; allowed: high, low, normal"
    ):
        tree(a={"preemption": {"protected": "urgent"}})


@pytest.mark.parametrize(
    ("table", "field"),
    [
        ({"min_runtime": "-PT1S"}, "preemption.min_runtime"),
        ({"min_runtime": "P400D"}, "preemption.min_runtime"),
        ({"resize_period": "-PT1S"}, "preemption.resize_period"),
        ({"max_preemptions": -1}, "preemption.max_preemptions"),
        ({"max_preemptions": 1001}, "preemption.max_preemptions"),
        ({"by_priority": "sometimes"}, "preemption.by_priority"),
        ({"within": True}, "preemption.within"),
    ],
)
def test_rules_of_preemption_that_are_not_allowed_are_refused(table: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        QueueRecipe.model_validate({"preemption": table})
    assert ".".join(map(str, refused.value.errors()[0]["loc"])) == field

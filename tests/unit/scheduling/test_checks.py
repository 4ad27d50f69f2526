"""Whether a gang can ever start: within the capacity, the quotas, and what others lend."""

from typing import Any

import pytest

from job_tracker.domain.diagnosis import Category
from job_tracker.scheduling.checks import fits_ever
from job_tracker.scheduling.model import Gang, Part
from job_tracker.scheduling.recipes import QueueRecipe
from job_tracker.scheduling.tree import Tree, pool_of, tree_of

GPU = "nvidia.com/gpu"
POOL = pool_of({"a100": {"instances": "100", GPU: "64"}}, 8)


def tree(**tables: dict[str, Any]) -> Tree:
    return tree_of(POOL, {name: QueueRecipe.model_validate(table) for name, table in tables.items()})


def gpus(nominal: int, **more: int) -> dict[str, Any]:
    return {"quotas": {"a100": {"nominal": {GPU: nominal}, **{name: {GPU: n} for name, n in more.items()}}}}


def gang(count: int, *others: Part, least: int = 0) -> Gang:
    return Gang(job_id=1, queue="a", parts=(Part(count, {"instances": 1, GPU: 1}), *others), least=least)


@pytest.mark.parametrize(
    ("tables", "most"),
    [
        ({"a": {}}, 64),
        ({"a": gpus(8)}, 64),
        ({"a": gpus(8, borrow=0)}, 8),
        ({"a": gpus(8, borrow=4)}, 12),
        ({"a": gpus(8, borrow=1000)}, 64),
        ({"a": gpus(8), "b": gpus(16, lend=0)}, 48),
        ({"a": gpus(8), "b": gpus(16, lend=6)}, 54),
        ({"a": gpus(24, lend=0), "b": gpus(40, lend=0)}, 24),
        ({"top": gpus(32), "a": {"parent": "top", **gpus(8, borrow=2)}}, 10),
        ({"top": gpus(32, borrow=0), "a": {"parent": "top", **gpus(8)}}, 32),
        ({"top": {}, "a": {}, "b": {"parent": "top", **gpus(16, lend=6)}}, 54),
    ],
)
def test_a_job_may_be_as_large_as_what_others_can_lend_to_its_queue(
    tables: dict[str, dict[str, Any]], most: int
) -> None:
    made = tree(**tables)
    assert fits_ever(made.queues, POOL.flavors, gang(most)) is None
    problem = fits_ever(made.queues, POOL.flavors, gang(most + 1))
    assert problem is not None
    assert problem.category is Category.EXCEEDS_CAPACITY
    assert f"is {most} trainers, on the flavor a100" in problem.summary


def test_other_roles_take_their_part_first() -> None:
    servers = Part(2, {"instances": 1, GPU: 8})
    made = tree(a={})
    assert fits_ever(made.queues, POOL.flavors, gang(48, servers)) is None
    problem = fits_ever(made.queues, POOL.flavors, gang(49, servers))
    assert problem is not None
    assert "is 48 trainers" in problem.summary


def test_an_elastic_job_fits_if_its_smallest_group_does() -> None:
    made = tree(a={})
    assert fits_ever(made.queues, POOL.flavors, gang(200, least=64)) is None
    assert fits_ever(made.queues, POOL.flavors, gang(200, least=65)) is not None

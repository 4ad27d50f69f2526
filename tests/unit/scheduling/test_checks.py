"""Checks whether a gang can ever start: within the capacity, the quotas, and the loans of other queues."""

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


def test_a_job_for_devices_does_not_fit_on_a_flavor_that_does_not_have_them() -> None:
    pool = pool_of({"a100": {"instances": "16", GPU: "64", "memory": "1Ti"}, "cpu": {"instances": "200"}}, 8)
    queues = tree_of(pool, {}).queues
    each = {"instances": 1, GPU: 8, "cpu": 500, "memory": 2**30}
    assert fits_ever(queues, pool.flavors, Gang(job_id=1, parts=(Part(8, each),))) is None
    problem = fits_ever(queues, pool.flavors, Gang(job_id=1, parts=(Part(9, each),)))
    assert problem is not None
    assert problem.summary == (
        "The job needs 9 instances, 72 nvidia.com/gpu, 4500m cpu, 9Gi memory for 9 trainers. The largest "
        "that fits in the capacity and the quota of the queue default is 8 trainers, on the flavor a100."
    )
    on_cpus = Gang(job_id=1, parts=(Part(200, {"instances": 1, "memory": 2**30}),))
    assert fits_ever(queues, pool.flavors, on_cpus) is None


def test_one_trainer_is_not_called_trainers() -> None:
    pool = pool_of({"small": {"instances": "1"}}, 8)
    problem = fits_ever(tree_of(pool, {}).queues, pool.flavors, Gang(job_id=1, parts=(Part(2, {}),)))
    assert problem is not None
    assert problem.resolution == "Submit it with at most 1 trainer, or raise the capacity or the quota."

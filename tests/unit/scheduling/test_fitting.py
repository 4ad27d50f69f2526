"""Whether a job could ever start, if nothing else ran."""

from typing import Any

import pytest

from job_tracker.scheduling.fitting import Misfit, ceilings_of, misfit_of
from job_tracker.scheduling.model import Gang, Part
from job_tracker.scheduling.recipes import QueueRecipe
from job_tracker.scheduling.tree import Tree, pool_of, tree_of

GPU = "nvidia.com/gpu"
POOL = pool_of({"a100": {"instances": "10", GPU: "64"}, "spot": {"instances": "4"}}, 8)


def tree(**tables: dict[str, Any]) -> Tree:
    return tree_of(POOL, {name: QueueRecipe.model_validate(table) for name, table in tables.items()})


def gpus(nominal: int, **more: int) -> dict[str, Any]:
    return {"quotas": {"a100": {"nominal": {GPU: nominal}, **{name: {GPU: n} for name, n in more.items()}}}}


def gang(count: int, each: int, *others: Part, queue: str = "default", least: int = 0) -> Gang:
    return Gang(
        job_id=1,
        queue=queue,
        parts=(Part(count, {"instances": 1, **({GPU: each} if each else {})}), *others),
        least=least,
    )


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
        ({"top": gpus(32, borrow=0), "a": {"parent": "top", **gpus(8)}}, 32),
        ({"top": gpus(32), "a": {"parent": "top", **gpus(8, borrow=2)}}, 10),
        ({"top": gpus(32, borrow=8), "a": {"parent": "top"}, "b": {"parent": "top", **gpus(9, lend=0)}}, 31),
    ],
)
def test_the_most_that_a_queue_can_use_is_what_others_can_lend_it(
    tables: dict[str, dict[str, Any]], most: int
) -> None:
    made = tree(**tables)
    assert ceilings_of(made, "a")["a100"][GPU] == most
    assert ceilings_of(made, "a") is ceilings_of(made, "a")


def test_a_job_that_fits_one_flavor_is_no_misfit() -> None:
    assert misfit_of(tree(), gang(8, 8)) is None
    assert misfit_of(tree(), gang(10, 0)) is None


def test_the_largest_that_would_fit_is_named() -> None:
    assert misfit_of(tree(), gang(9, 8)) == Misfit("a100", GPU, needed=72, most=64, trainers=8)
    assert misfit_of(tree(), gang(11, 1)) == Misfit("a100", "instances", needed=11, most=10, trainers=10)


def test_a_resource_that_no_capacity_names_is_not_limited() -> None:
    assert misfit_of(tree(), gang(1, 0, Part(1, {"instances": 1, "memory": 1 << 60}))) is None


def test_other_roles_take_their_part_first() -> None:
    servers = Part(2, {"instances": 1, GPU: 8})
    assert misfit_of(tree(), gang(7, 8, servers)) == Misfit("a100", GPU, needed=72, most=64, trainers=6)
    assert misfit_of(tree(), gang(6, 8, servers)) is None


def test_an_instance_that_is_larger_than_any_quota_fits_nowhere() -> None:
    small = tree(
        a=gpus(4, borrow=0), b={"quotas": {"spot": {"nominal": {"instances": 4}, "lend": {"instances": 0}}}}
    )
    misfit = misfit_of(small, gang(2, 8, queue="a"))
    assert misfit == Misfit("a100", GPU, needed=16, most=4, trainers=0)


def test_an_elastic_job_fits_if_its_smallest_group_does() -> None:
    assert misfit_of(tree(), gang(20, 8, least=8)) is None
    misfit = misfit_of(tree(), gang(20, 8, least=9))
    assert misfit is not None
    assert misfit.trainers == 8

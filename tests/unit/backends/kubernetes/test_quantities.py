"""Quantities of the cluster: what nodes offer, and what pods request."""

from typing import Any

import pytest

from job_tracker.backends.kubernetes.quantities import offered, requested


def container(**requests: str) -> dict[str, Any]:
    return {"name": "x", "resources": {"requests": requests}}


@pytest.mark.parametrize(
    ("name", "quantity", "expected"),
    [
        ("cpu", "3920m", 3920),
        ("cpu", "4", 4000),
        ("cpu", "0.5", 500),
        ("cpu", "1500u", 1),
        ("cpu", "900000000n", 900),
        ("memory", "16Ki", 16384),
        ("memory", "1.5Gi", 3 << 29),
        ("memory", "12e6", 12_000_000),
        ("memory", "1E3", 1000),
        ("memory", "2E", 2 * 10**18),
        ("memory", "128974848", 128_974_848),
        ("memory", "500m", 0),
        ("nvidia.com/gpu", "8", 8),
        ("pods", "110", 110),
    ],
)
def test_a_part_of_what_a_node_offers_does_not_count(name: str, quantity: str, expected: int) -> None:
    assert offered({name: quantity}) == {name: expected}


def test_containers_of_a_pod_are_added_and_a_part_of_a_unit_counts_as_one() -> None:
    spec = {"containers": [container(cpu="100m", memory="1Ki"), container(cpu="1500u")]}
    assert requested({"spec": spec}) == {"cpu": 102, "memory": 1024}


def test_init_containers_count_if_they_need_more_than_the_containers() -> None:
    spec = {"initContainers": [container(cpu="4")], "containers": [container(cpu="1", memory="1k")]}
    assert requested({"spec": spec}) == {"cpu": 4000, "memory": 1000}


def test_sidecars_run_with_the_containers_and_with_the_init_containers_below_them() -> None:
    sidecar = {**container(cpu="1"), "restartPolicy": "Always"}
    of_containers = {"initContainers": [container(cpu="2"), sidecar], "containers": [container(cpu="3")]}
    assert requested({"spec": of_containers}) == {"cpu": 4000}
    of_init = {"initContainers": [sidecar, container(cpu="4")], "containers": [container(cpu="3")]}
    assert requested({"spec": of_init}) == {"cpu": 5000}


def test_overhead_is_added_and_resources_of_the_whole_pod_replace_the_sum() -> None:
    spec = {
        "containers": [container(cpu="1", memory="1k")],
        "resources": {"requests": {"cpu": "2"}},
        "overhead": {"cpu": "250m"},
    }
    assert requested({"spec": spec}) == {"cpu": 2250, "memory": 1000}


def test_a_pod_without_requests_takes_nothing() -> None:
    assert requested({"spec": {"containers": [{"name": "x"}]}}) == {}


def test_a_text_that_is_no_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="'4GB' is not a quantity"):
        offered({"memory": "4GB"})

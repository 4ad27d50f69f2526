"""Shares of queues: their use, divided by the capacity and by their weight."""

import pytest

from job_tracker.scheduling.model import Flavor, Queue, Usage
from job_tracker.scheduling.shares import Shares

NOW = 1_000_000.0
FLAVORS = (
    Flavor(name="a100", capacity={"instances": 10, "gpu": 80}),
    Flavor(name="spot", capacity={"instances": 100, "none": 0}),
)


def shares(*queues: Queue, **used: dict[str, dict[str, float]]) -> Shares:
    usage = {name: Usage(NOW, amounts) for name, amounts in used.items()}
    return Shares(FLAVORS, {each.name: each for each in queues}, usage, NOW, half_life=100.0)


def test_the_largest_share_of_any_resource_counts() -> None:
    found = shares(a={"a100": {"instances": 20.0, "gpu": 240.0}, "spot": {"instances": 50.0}})

    assert found.of("a") == pytest.approx(3.0)


def test_a_share_is_divided_by_the_weight() -> None:
    found = shares(
        *(Queue(name="a", weight=4), Queue(name="b")),
        a={"spot": {"instances": 200.0}},
        b={"spot": {"instances": 100.0}},
    )

    assert found.of("a") == pytest.approx(0.5)
    assert found.of("b") == pytest.approx(1.0)


def test_usage_counts_half_after_a_half_life() -> None:
    usage = {"a": Usage(NOW - 100, {"spot": {"instances": 400.0}})}

    assert Shares(FLAVORS, {}, usage, NOW, 100.0).of("a") == pytest.approx(2.0)


def test_usage_from_the_future_does_not_grow() -> None:
    usage = {"a": Usage(NOW + 100, {"spot": {"instances": 400.0}})}

    assert Shares(FLAVORS, {}, usage, NOW, 100.0).of("a") == pytest.approx(4.0)


def test_a_parent_uses_what_its_queues_use() -> None:
    queues = (Queue(name="top", weight=2), Queue(name="a", parent="top"), Queue(name="b", parent="top"))
    found = shares(*queues, a={"spot": {"instances": 100.0}}, b={"a100": {"instances": 30.0}})
    found.charge("a", "a100", {"instances": 1}, 10.0)

    assert found.of("a") == pytest.approx(1.0)
    assert found.of("b") == pytest.approx(3.0)
    assert found.of("top") == pytest.approx((1.0 + 3.0) / 2)


def test_what_has_no_capacity_does_not_count() -> None:
    found = shares(a={"spot": {"none": 5.0, "other": 5.0}, "gone": {"instances": 5.0}})

    assert found.of("a") == 0.0
    assert found.of("unknown") == 0.0

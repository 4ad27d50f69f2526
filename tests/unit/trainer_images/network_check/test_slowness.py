import itertools
from collections.abc import Callable

import pytest
from network_check.result import PairResult, Timed, pair_result
from network_check.slowness import slow_links

FAST, SLOW = 100e6, 10e6
Bandwidth = Callable[[int, int], float]


def links(size: int, bandwidth: Bandwidth, latency: Bandwidth = lambda *_: 1e-4) -> list[PairResult]:
    return [
        PairResult(a, b, latency(a, b), bandwidth(a, b), [])
        for a, b in itertools.permutations(range(size), 2)
    ]


def named(pairs: list[PairResult], local_size: int = 1) -> list[object]:
    return [
        slow.instance if slow.kind == "instance" else (slow.source, slow.destination)
        for slow in slow_links(pairs, local_size, 2)
    ]


def test_equal_links_are_not_slow() -> None:
    assert named(links(4, lambda *_: FAST)) == []


@pytest.mark.parametrize("size", [3, 4, 7])
def test_a_slow_instance_is_named_alone(size: int) -> None:
    assert named(links(size, lambda a, b: SLOW if 2 in (a, b) else FAST)) == [2]


@pytest.mark.parametrize("size", [3, 4, 7])
def test_one_slow_direction_of_a_pair_is_named(size: int) -> None:
    assert named(links(size, lambda a, b: SLOW if (a, b) == (1, 0) else FAST)) == [(1, 0)]


def test_of_two_ranks_the_slower_direction_is_named() -> None:
    assert named(links(2, lambda a, b: SLOW if a else FAST)) == [(1, 0)]


def test_a_far_instance_is_named_by_its_latency() -> None:
    [slow] = slow_links(links(4, lambda *_: FAST, lambda a, b: 0.02 if 3 in (a, b) else 1e-4), 1, 2)
    assert str(slow) == "instance 3: latency 200.0 times worse than usual (20.00 ms, median 0.10 ms)"


def test_a_latency_within_the_noise_of_a_processor_is_not_named() -> None:
    assert named(links(4, lambda *_: FAST, lambda a, b: 9e-4 if 3 in (a, b) else 1e-4)) == []


def test_the_fast_links_within_instances_do_not_make_those_between_them_slow() -> None:
    pairs = [PairResult(a, b, 1e-4, FAST, []) for a, b in itertools.permutations((0, 2, 4), 2)]
    pairs += [PairResult(a, a + 1, 1e-5, 100 * FAST, []) for a in (0, 2, 4)]
    assert named(pairs, local_size=2) == []


def test_latency_and_bandwidth_explain_the_time_of_the_largest_message() -> None:
    pair = pair_result(0, 1, [Timed(8, 0.001, 5), Timed(10**6, 0.011, 5)], latency=0.0009)
    assert pair.latency_s == 0.0009
    assert pair.bandwidth_bytes_per_s == pytest.approx(1e8)


def test_noise_above_the_signal_leaves_a_positive_bandwidth() -> None:
    pair = pair_result(0, 1, [Timed(8, 0.001, 5), Timed(16, 0.0008, 5)], 0.001)
    assert pair.bandwidth_bytes_per_s == 20_000

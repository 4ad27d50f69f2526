"""Laws are found again in noisy points that follow them, and name the points on which they were fitted."""

import math
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_service.client.scaling.laws import Law, Point, Scaling, fit
from training_service.client.scaling.least_squares import nonnegative

COUNTS = (1, 2, 4, 8, 16)


def strong(terms: tuple[float, ...], n: int) -> float:
    work, rest, latency = terms
    return work / n + rest * (n - 1) / n + latency * (n - 1)


def points(counts: tuple[int, ...], *terms: float, noise: float = 0.0, seed: int = 0) -> list[Point]:
    random = Random(seed)
    times = [strong(terms, n) for n in counts]
    return [Point(n, t * (1 + random.gauss(0, noise)), t * noise) for n, t in zip(counts, times, strict=True)]


def test_amdahls_law_is_found_with_its_serial_part() -> None:
    law = fit(points(COUNTS, 10.0, 0.5, 0.0), Scaling.STRONG)
    assert law.name == "amdahl"
    assert law.coefficients == pytest.approx({"work": 10, "rest": 0.5})
    assert law.speed_up(8) == pytest.approx(1 / (0.05 + 0.95 / 8))


def test_the_simplest_law_that_explains_all_points_is_chosen() -> None:
    assert fit(points(COUNTS, 10.0, 0.0, 0.0), Scaling.STRONG).name == "linear"
    assert fit(points(COUNTS, 10.0, 0.0, 0.1), Scaling.STRONG).name == "linear with latency"
    assert fit(points(COUNTS, 10.0, 0.5, 0.05), Scaling.STRONG).name == "amdahl with latency"


def test_the_serial_part_and_the_bandwidth_of_a_ring_have_the_same_shape() -> None:
    serial, parallel, bandwidth = 0.3, 9.7, 0.4
    times = [Point(n, serial + parallel / n + bandwidth * (n - 1) / n) for n in COUNTS]
    law = fit(times, Scaling.STRONG)
    assert law.coefficients == pytest.approx({"work": 10, "rest": 0.7})


@given(
    work=st.floats(0.1, 100),
    rest=st.floats(0, 1),
    latency=st.floats(0, 0.05),
    seed=st.integers(0, 10**6),
)
def test_a_known_law_is_found_again_under_noise(work: float, rest: float, latency: float, seed: int) -> None:
    terms = (work, rest * work, latency * work)
    law = fit(points((1, 2, 3, 4, 6, 8), *terms, noise=0.01, seed=seed), Scaling.STRONG)
    for n in (1, 2, 5, 8):
        assert law.seconds(n) == pytest.approx(strong(terms, n), rel=0.06)


@given(
    times=st.lists(
        st.tuples(st.integers(1, 64), st.floats(1e-4, 1e4)), min_size=1, max_size=8, unique_by=lambda t: t[0]
    ),
    scaling=st.sampled_from(Scaling),
)
def test_any_points_give_a_law_that_makes_sense(times: list[tuple[int, float]], scaling: Scaling) -> None:
    law = fit([Point(n, t) for n, t in times], scaling)
    assert all(value >= 0 for value in law.coefficients.values())
    assert all(law.seconds(n) > 0 for n in (2, 3, 100))
    if scaling is Scaling.WEAK:
        steps = [law.seconds(n) for n in range(1, 30)]
        assert all(a <= b * (1 + 1e-9) for a, b in pairwise(steps))
    if (interval := law.interval(7)) is not None:
        assert interval[0] <= law.seconds(7) * (1 + 1e-9)
        assert law.seconds(7) <= interval[1] * (1 + 1e-9)


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    held = 0
    for seed in range(200):
        law = fit(points((1, 2, 3, 4, 5, 6), 10.0, 2.0, 0.0, noise=0.02, seed=seed), Scaling.STRONG)
        interval = law.interval(8)
        assert interval is not None
        held += interval[0] <= strong((10.0, 2.0, 0.0), 8) <= interval[1]
    assert 180 <= held <= 200


def test_one_point_assumes_perfect_scaling_and_says_so() -> None:
    law = fit([Point(2, 5.0)], Scaling.STRONG)
    assert (law.seconds(2), law.seconds(4), law.efficiency(64)) == pytest.approx((5, 2.5, 1))
    assert law.interval(4) is None
    assert "one number of instances says nothing about scaling" in law.basis


def test_two_points_do_not_say_how_exact_they_are_unless_their_errors_are_known() -> None:
    law = fit([Point(1, 10.0), Point(2, 6.0)], Scaling.STRONG)
    assert law.seconds(4) == pytest.approx(4.0)
    assert law.interval(4) is None
    assert law.basis == "fitted on 1, 2 instances: as many points as coefficients, so its error is not known"
    exact = fit([Point(1, 10.0, 0.1), Point(2, 6.0, 0.1)], Scaling.STRONG).interval(4)
    assert exact is not None
    assert exact[0] < 4.0 < exact[1]


def test_more_points_say_how_well_they_are_explained() -> None:
    law = fit(points(COUNTS, 10.0, 0.5, 0.0), Scaling.STRONG)
    assert law.basis == "fitted on 1, 2, 4, 8, 16 instances: within 0.0% of each point"


def test_points_of_equal_numbers_of_instances_are_repeated_measurements() -> None:
    law = fit([Point(1, 10.0), Point(1, 10.4), Point(2, 6.0), Point(2, 6.2)], Scaling.STRONG)
    assert law.seconds(1) == pytest.approx(10.2, rel=0.01)
    assert law.interval(2) is not None


def test_gustafsons_law_is_found_with_weak_scaling() -> None:
    serial = 0.2
    times = [Point(n, 3.0 * n / (serial + (1 - serial) * n)) for n in COUNTS]
    law = fit(times, Scaling.WEAK)
    assert [law.speed_up(n) for n in COUNTS] == pytest.approx(
        [serial + (1 - serial) * n for n in COUNTS], rel=0.03
    )


def test_weak_scaling_with_a_ring_has_its_terms() -> None:
    times = [Point(n, 3.0 + 0.8 * (n - 1) / n + 0.1 * (n - 1)) for n in COUNTS]
    law = fit(times, Scaling.WEAK)
    assert law.coefficients == pytest.approx({"work": 3.0, "rest": 0.8, "latency": 0.1})
    assert law.efficiency(8) == pytest.approx(3 / 4.4)


@pytest.mark.parametrize(
    "point", [(0, 1.0), (1, 0.0), (1, -1.0), (1, math.nan), (1, math.inf), (1, 1.0, -1.0)]
)
def test_a_time_that_cannot_be_is_refused(point: tuple[int, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        Point(*point)


def test_a_law_without_points_is_refused() -> None:
    with pytest.raises(ValueError, match="no run has a throughput"):
        fit([], Scaling.STRONG)


@given(
    rows=st.lists(st.lists(st.floats(0.01, 10), min_size=3, max_size=3), min_size=3, max_size=6),
    targets=st.lists(st.floats(-10, 10), min_size=6, max_size=6),
)
def test_no_other_nonnegative_values_have_less_squares(rows: list[list[float]], targets: list[float]) -> None:
    targets = targets[: len(rows)]
    found = nonnegative(rows, targets)
    assert min(found.values) >= 0

    def squares(values: tuple[float, ...]) -> float:
        return sum(
            (sum(a * b for a, b in zip(row, values, strict=True)) - target) ** 2
            for row, target in zip(rows, targets, strict=True)
        )

    assert squares(found.values) == pytest.approx(found.squares, rel=1e-6, abs=1e-9)
    for index in range(3):
        for change in (-1e-3, 1e-3):
            near = list(found.values)
            near[index] = max(0.0, near[index] + change)
            assert squares(tuple(near)) >= found.squares - 1e-6


def test_a_law_is_a_value() -> None:
    law = fit(points(COUNTS, 10.0, 0.5, 0.0), Scaling.STRONG)
    assert isinstance(law, Law)
    assert law.fitted_on == COUNTS

"""Free resources over time."""

import math
import random

import pytest

from job_tracker.scheduling.profile import Profile, in_order

NOW = 100.0


def test_what_is_held_gets_free_at_its_end() -> None:
    profile = Profile(NOW, {"gpu": 0}, [(150.0, {"gpu": 4}), (200.0, {"gpu": 4})])

    assert profile.times() == [100.0, 150.0, 200.0]
    assert [profile.lowest(at, at) for at in (100.0, 149.0, 150.0, 200.0)] == [(0,), (0,), (4,), (8,)]


def test_what_is_not_given_back_never_gets_free() -> None:
    profile = Profile(NOW, {"gpu": 3}, in_order([(math.inf, {"gpu": 5})]))

    assert profile.earliest((3,), 10.0, NOW) == NOW
    assert profile.earliest((4,), 10.0, NOW) == math.inf


def test_all_that_is_given_back_at_one_time_is_free_from_then_on() -> None:
    returned = in_order([(200.0, {"gpu": 3}), (150.0, {"gpu": 4}), (200.0, {"gpu": 1})])
    profile = Profile(NOW, {"gpu": 0}, returned)

    assert [time for time, _ in returned] == [150.0, 200.0, 200.0]
    assert profile.earliest((5,), 10.0, NOW) == profile.earliest((8,), 10.0, NOW) == 200.0
    assert profile.lowest(150.0, 200.0) == (4,)


def test_a_use_from_now_on_gives_back_at_its_end() -> None:
    profile = Profile(NOW, {"gpu": 4}, [(150.0, {"gpu": 1})])
    profile.take((4,), NOW, 130.0)
    profile.take((2,), 140.0, 160.0)

    assert profile.lowest(NOW, 130.0) == (0,)
    assert profile.earliest((3,), 5.0, NOW) == 130.0
    assert profile.earliest((3,), 11.0, NOW) == 150.0
    assert profile.earliest((4,), 11.0, NOW) == 160.0


def test_what_is_given_back_and_taken_at_one_time_is_free_only_as_its_sum() -> None:
    profile = Profile(NOW, {"gpu": 4}, [(200.0, {"gpu": 4})])
    profile.take((-4,), NOW, 200.0)

    assert profile.times() == [NOW, 200.0]
    assert profile.lowest(200.0, 201.0) == (8,)
    assert profile.earliest((9,), 1.0, NOW) == math.inf


def test_a_need_waits_until_all_resources_are_free_for_its_length() -> None:
    profile = Profile(NOW, {"gpu": 0, "cpu": 0}, [(150.0, {"gpu": 8}), (200.0, {"cpu": 4})])
    profile.take((8, 0), 300.0, 400.0)

    assert profile.earliest((1, 1), 100.0, NOW) == 200.0
    assert profile.earliest((1, 1), 101.0, NOW) == 400.0
    assert profile.earliest((1, 0), 10.0, 160.0) == 160.0


def test_the_end_of_a_use_is_the_beginning_of_what_is_free() -> None:
    profile = Profile(NOW, {"gpu": 2})
    profile.take((2,), 110.0, 120.0)

    assert profile.fits_at((2,), 10.0, 100.0)
    assert not profile.fits_at((1,), 10.1, 100.0)
    assert profile.fits_at((2,), math.inf, 120.0)
    assert profile.earliest((2,), 11.0, NOW) == 120.0


def test_a_use_without_an_end_lasts() -> None:
    profile = Profile(NOW, {"gpu": 2})
    profile.take((2,), 110.0, math.inf)

    assert profile.earliest((1,), 10.0, NOW) == NOW
    assert profile.earliest((1,), 10.1, NOW) == math.inf


@pytest.mark.parametrize("seed", range(20))
def test_it_agrees_with_counting_second_by_second(seed: int) -> None:
    chance = random.Random(seed)
    horizon, size = 60, 8
    free = [size] * horizon
    held = []
    for _ in range(3):
        end = chance.randrange(1, 20)
        held.append((float(end), {"gpu": 2}))
        free[:end] = [each - 2 for each in free[:end]]
    profile = Profile(0.0, {"gpu": free[0]}, in_order(held))
    for _ in range(15):
        need, length, after = chance.randint(1, size), chance.randint(1, 9), chance.randint(0, 30)
        expected = next(
            at for at in range(after, horizon) if all(each >= need for each in free[at : at + length])
        )
        if expected + length >= horizon:
            break
        found = profile.earliest((need,), float(length), float(after))
        assert found == expected
        assert profile.fits_at((need,), float(length), found)
        profile.take((need,), found, found + length)
        free[expected : expected + length] = [each - need for each in free[expected : expected + length]]
        assert all(profile.lowest(at, at + 1) == (free[at],) for at in range(horizon))

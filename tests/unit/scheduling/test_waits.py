"""Expected waits: how earlier waits turned out."""

import json
import random

import pytest

from job_tracker.scheduling.model import Promise
from job_tracker.scheduling.waits import WaitRule, WaitTimes

LATER = 400 * 10_000.0


def started(times: WaitTimes, now: float, *job_ids: int) -> None:
    times.observe(now, job_ids, {}, {})


def submitted(times: WaitTimes, now: float, ahead: dict[int, float]) -> None:
    times.observe(now, (), ahead, {})


def learned() -> WaitTimes:
    times, chance = WaitTimes(), random.Random(1)
    for job_id in range(400):
        begin = job_id * 10_000.0
        submitted(times, begin, {job_id: 1000.0})
        started(times, begin + 1000.0 * chance.uniform(2, 4), job_id)
    return times


def test_waits_are_learned_as_factors_of_the_work_ahead() -> None:
    rule = learned().rule(LATER)
    wait = rule.wait(1000.0)
    assert 2500 < wait.median < 3500
    assert 3500 < wait.high < 4000
    assert rule.wait(500.0).high == wait.high / 2


def test_no_job_is_expected_to_wait_longer_than_promised() -> None:
    rule = learned().rule(LATER)
    assert (rule.wait(1000.0, 100.0).median, rule.wait(1000.0, 100.0).high) == (100.0, 100.0)
    assert rule.wait(1000.0, float("inf")) == rule.wait(1000.0)
    found = WaitTimes().observe(50.0, (), {1: 1000.0, 2: 1000.0}, {1: Promise(60.0, "default")})
    assert found[1].high == 10.0
    assert found[2].high > 100.0


def test_jobs_that_still_wait_count_as_longer_waits() -> None:
    times = WaitTimes()
    submitted(times, 0.0, dict.fromkeys(range(400), 1000.0))
    started(times, 1000.0, *range(100))
    assert times.rule(20_000.0).wait(1000.0).median > 1000.0
    for job_id in range(400):
        times.forget(job_id)
    assert times.waiting() == []
    assert times.rule(20_000.0).wait(1000.0).median == 1000.0


@pytest.mark.parametrize(("late", "rises"), [(9_000.0, True), (100.0, False)])
def test_the_p90_follows_its_own_success(late: float, rises: bool) -> None:
    times = WaitTimes()
    before = json.loads(times.text())["share"]
    submitted(times, 0.0, dict.fromkeys(range(20), 1000.0))
    started(times, late, *range(20))
    share = json.loads(times.text())["share"]
    assert (share > before) == rises
    assert 0.8 <= share <= 0.99


def test_a_job_that_waits_too_long_corrects_the_p90_before_it_starts_and_only_once() -> None:
    times = WaitTimes()
    submitted(times, 0.0, {1: 1000.0})
    submitted(times, 5_000.0, {})
    once = json.loads(times.text())["share"]
    assert once > 0.9
    started(times, 6_000.0, 1)
    assert json.loads(times.text())["share"] == once


def test_memory_is_bounded() -> None:
    times = WaitTimes(kept=3)
    for job_id in range(100):
        submitted(times, 0.0, {job_id: 100.0})
    assert times.waiting() == [0, 1, 2]
    for job_id in range(100, 200):
        started(times, 50.0, *times.waiting())
        submitted(times, 50.0, {job_id: 100.0})
    assert len(json.loads(times.text())["last"]) == 3


def test_a_job_that_waits_long_is_followed_however_many_are_submitted_after_it() -> None:
    times = WaitTimes(kept=3)
    submitted(times, 0.0, {1: 1000.0})
    for job_id in range(2, 100):
        submitted(times, 10.0, {job_id: 1000.0})
    started(times, 50_000.0, 1)
    assert times.rule(50_000.0).last == 50_000.0


def test_a_clock_that_is_set_back_spoils_nothing() -> None:
    times = WaitTimes()
    submitted(times, 1000.0, {1: 100.0})
    started(times, 10.0, 1)
    submitted(times, 1000.0, {2: 100.0})
    wait = times.rule(10.0).wait(100.0)
    assert wait.high >= wait.median >= 0


def test_what_was_learned_is_restored_from_its_text() -> None:
    times, again = learned(), WaitTimes()
    submitted(times, LATER, {1000: 300.0})
    assert again.restore(times.text())
    assert again.text() == times.text()
    assert again.rule(LATER).high == pytest.approx(times.rule(LATER).high, rel=0.01)
    assert again.waiting() == [1000]
    assert len(times.text()) < 40_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '{"share": 1}',
        '{"share": "x", "last": [], "waiting": []}',
        '{"share": 0.9, "last": [], "waiting": [[1]]}',
        '{"share": 0.9, "last": [], "waiting": [[1, 2, "x", 3, false]]}',
        "[" * 100_000,
    ],
)
def test_a_text_of_something_else_changes_nothing(text: str) -> None:
    times = learned()
    before = times.text()
    assert not times.restore(text)
    assert times.text() == before


def test_without_experience_a_wait_is_at_most_the_work_ahead() -> None:
    found = WaitTimes().rule(0.0)
    assert found.wait(1000.0) == WaitRule().wait(1000.0)

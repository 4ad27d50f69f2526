"""Processes and SQLite: the service is killed before and after every call that it makes to the outside."""

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.crash.faults import KILLS
from tests.crash.sweep import ERRORS, Call, Sweep, points, summary, with_recoveries

SEED = int(os.environ.get("CRASH_SEED", random.randrange(10**6)))
SAMPLE = 40

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path)


@pytest.fixture
def calls(sweep: Sweep) -> list[Call]:
    """What the service does when nothing happens to it."""
    return sweep.reference()


def survives(sweep: Sweep, tried: Sequence[tuple[str, ...]], capsys: pytest.CaptureFixture[str]) -> None:
    """Try these faults; print the figures, and the seed that what was drawn can be drawn again with."""
    outcomes = sweep.run(tried)
    with capsys.disabled():
        print("\n".join(("", f"CRASH_SEED={SEED}", *summary(outcomes))))
    assert len(outcomes) == len(tried)
    broken = [outcome for outcome in outcomes if outcome.problems]
    assert not broken, "\n".join(f"{outcome}\n{outcome.log}" for outcome in broken)


def test_every_kill_is_survived(sweep: Sweep, calls: list[Call], capsys: pytest.CaptureFixture[str]) -> None:
    assert {call.kind for call in calls} >= {"commit", "file", "spawn", "signal"}
    survives(sweep, points(calls, KILLS), capsys)


def test_a_kill_during_the_recovery_from_a_kill_is_survived(
    sweep: Sweep, calls: list[Call], capsys: pytest.CaptureFixture[str]
) -> None:
    kills = random.Random(SEED).sample(points(calls, KILLS), SAMPLE)
    survives(sweep, with_recoveries(kills, SEED), capsys)


def test_a_call_that_fails_is_survived(
    sweep: Sweep, calls: list[Call], capsys: pytest.CaptureFixture[str]
) -> None:
    survives(sweep, random.Random(SEED).sample(points(calls, ERRORS), SAMPLE), capsys)

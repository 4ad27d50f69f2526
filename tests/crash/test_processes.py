"""Processes and SQLite: the service is killed before and after every call to the outside."""

import random
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.forkserver import ForkServer
from tests.crash.local import LocalWorld
from tests.crash.soak import soak
from tests.crash.surviving import SEED, survives
from tests.crash.sweep import Call, Sweep, errors, kills, with_recoveries

KILLS = 60
"""Out of some thousand points, different ones in each run. `scripts/crash-points` tries all."""
SAMPLE = 15
SOAK_SECONDS = 20

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(lambda name: LocalWorld(tmp_path / name))


@pytest.fixture
def calls(sweep: Sweep) -> list[Call]:
    """The calls of a service without faults."""
    return sweep.reference()


def test_a_kill_is_survived(sweep: Sweep, calls: list[Call], capsys: pytest.CaptureFixture[str]) -> None:
    assert {call.kind for call in calls} >= {"commit", "file", "spawn", "signal"}
    deletion = kills(call for call in calls if call.name == "delete")
    assert deletion
    sample = random.Random(SEED).sample(kills(calls), KILLS - len(deletion))
    survives(sweep, [*deletion, *sample], capsys)


def test_a_kill_during_the_recovery_from_a_kill_is_survived(
    sweep: Sweep, calls: list[Call], capsys: pytest.CaptureFixture[str]
) -> None:
    sample = random.Random(SEED).sample(kills(calls), SAMPLE)
    survives(sweep, with_recoveries(sample, SEED), capsys)


def test_a_failing_call_is_survived(
    sweep: Sweep, calls: list[Call], capsys: pytest.CaptureFixture[str]
) -> None:
    survives(sweep, random.Random(SEED).sample(errors(calls), SAMPLE), capsys)


def test_jobs_survive_a_soak_of_kills_and_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = LocalWorld(tmp_path / "soak")
    with closing(ForkServer(world.wraps)) as forks:
        record = soak(forks, world, SEED, SOAK_SECONDS)
    with capsys.disabled():
        print(f"\nCRASH_SEED={SEED}: {record}")
    print(record.log)
    assert not record.problems, "\n".join(record.problems)

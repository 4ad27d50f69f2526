"""Pods in memory: a sample of the points around an eviction. scripts/crash-points tries all."""

import random
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.scripted import KueueWorld, ScriptedWorld
from tests.crash.surviving import SEED, survives
from tests.crash.sweep import Sweep, around, errors, kills

LANES = 3
KILLS, ERRORS = 3, 2
WORLD = (ScriptedWorld, KueueWorld)[SEED % 2]
"""A world with evictions by a drain or by Kueue. The seed chooses, because each run takes several seconds."""


def test_kills_and_failing_calls_around_an_eviction_are_survived(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(Sweep(lambda name: WORLD(tmp_path / name), LANES)) as sweep:
        calls = sweep.reference()
        assert {call.kind for call in calls} >= {"api", "stream", "commit", "file"}
        decision = next(call for call in calls if "update to evicted" in call.name)
        near = around(calls, decision.name)
        dice = random.Random(SEED)
        tried = [*dice.sample(kills(near), KILLS), *dice.sample(errors(near), ERRORS)]
        survives(sweep, [*kills([decision]), *tried], capsys)

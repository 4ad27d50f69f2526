"""The assertion of tests that the service survives a sweep."""

import os
import random
from collections.abc import Sequence

import pytest

from tests.crash.sweep import Sweep, summary

SEED = int(os.environ.get("CRASH_SEED", random.randrange(10**6)))
"""The seed of all random choices. It is printed, so that a run can be repeated."""


def survives(sweep: Sweep, tried: Sequence[tuple[str, ...]], capsys: pytest.CaptureFixture[str]) -> None:
    """Try these faults, print the figures, and fail if any was not survived."""
    outcomes = sweep.run(tried)
    with capsys.disabled():
        print("\n".join(("", f"CRASH_SEED={SEED}", *summary(outcomes))))
    assert len(outcomes) == len(tried)
    broken = [outcome for outcome in outcomes if outcome.problems]
    for outcome in broken:
        print(f"{outcome}\n{outcome.log}")
    assert not broken, "\n".join(map(str, broken))

"""A small chaos: processes on SQLite and on Redis, with hostile jobs. `scripts/chaos` runs larger ones."""

import os
import random
import uuid
from pathlib import Path

import pytest

from tests.chaos.machine import MachineWorld
from tests.chaos.plans import KINDS, acts_of
from tests.chaos.report import report
from tests.chaos.run import Options, run
from tests.chaos.world import World
from tests.support.patience import PATIENCE
from tests.support.redis_server import server_or_skip

SEED = int(os.environ.get("CHAOS_SEED", random.randrange(10**6)))
"""The seed of all random choices. It is printed, so that a run can be repeated."""
JOBS, FAULTS, SECONDS, LANES = 40, 16, 15, 6

pytestmark = pytest.mark.timeout(1200)  # a run that is stuck says so first, after PATIENCE


def survives(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Run in that world, print the figures, and fail for any problem."""
    options = Options(
        seed=SEED,
        jobs=JOBS,
        faults=FAULTS,
        acts=acts_of(KINDS),
        seconds=SECONDS,
        lanes=LANES,
        patience=PATIENCE,
        slow=None,  # other tests run at the same time
    )
    record = run(world, options, print)
    with capsys.disabled():
        print(f"\nCHAOS_SEED={SEED}", *report(record), sep="\n")
    assert record.faults.total() > 0
    assert not record.problems, "\n".join(record.problems)


def test_jobs_survive_chaos_on_one_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    survives(MachineWorld(tmp_path, uuid.uuid4().hex, 3 * LANES), capsys)


def test_jobs_survive_chaos_with_replicas_on_redis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    redis = server_or_skip(tmp_path / "redis")
    survives(MachineWorld(tmp_path, uuid.uuid4().hex, 3 * LANES, redis), capsys)

"""Pods and Redis: a sample of the points: each takes fifteen seconds. scripts/crash-points tries all."""

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.remote import RemoteWorld
from tests.crash.surviving import SEED, survives
from tests.crash.sweep import Sweep, errors, kills
from tests.support.cluster import Cluster
from tests.support.redis_server import RedisServer, server_or_skip

LANES = 3
KILLS, ERRORS = 4, 4

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    made = server_or_skip(tmp_path / "redis")
    made.start()
    yield made
    made.end()


def test_kills_and_failing_calls_are_survived(
    cluster: Cluster,
    program_image: str,
    redis: RedisServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with closing(
        Sweep(lambda name: RemoteWorld(cluster, redis, program_image, tmp_path / name), LANES)
    ) as sweep:
        calls = sweep.reference()
        assert {call.kind for call in calls} >= {"api", "stream", "script", "file"}
        dice = random.Random(SEED)
        survives(sweep, [*dice.sample(kills(calls), KILLS), *dice.sample(errors(calls), ERRORS)], capsys)

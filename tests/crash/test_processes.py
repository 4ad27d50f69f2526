"""Processes: the service is killed before or after calls to the outside. A sample, on both stores."""

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.crash.forkserver import ForkServer
from tests.crash.local import LocalWorld
from tests.crash.soak import soak
from tests.crash.surviving import SEED, survives
from tests.crash.sweep import Call, Sweep, errors, kills, with_recoveries
from tests.crash.table import ALWAYS, REDIS, REDIS_READS, SCENARIO, SQLITE
from tests.support.redis_server import server_or_skip

KILLS = 50
"""The number of kills that are tried: those around the calls of ALWAYS, and a sample that is drawn anew each
time. `scripts/crash-points` tries all kills.
"""
WITH_RECOVERIES, ERRORS, KILLS_ON_REDIS = 15, 15, 12
"""The sizes of three samples: the KILLS that are followed by a kill during the recovery, the errors, and the
kills on Redis. The calls of ALWAYS are tried in addition to the last two samples.
"""
SOAK_SECONDS = 8

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    folder = tmp_path_factory.mktemp("sweep")
    with closing(Sweep(lambda name: LocalWorld(folder / name))) as made:
        yield made


@pytest.fixture(scope="module")
def calls(sweep: Sweep) -> list[Call]:
    """The calls of a service without faults."""
    return sweep.reference()


def always(calls: list[Call]) -> list[Call]:
    """Return the first call of each kind and name that is always tried."""
    found: dict[tuple[str, str], Call] = {}
    for call in calls:
        # A commit has the names of all changes that it writes together.
        if names := ALWAYS.intersection((*call.name.split(", "), " ".join(call.name.split(" ")[:2]))):
            found.setdefault((call.kind, min(names)), call)
    return list(found.values())


def test_every_change_of_the_scenario_is_a_point(calls: list[Call]) -> None:
    assert {call.kind for call in calls} >= {"commit", "file", "spawn", "signal"}
    names = {part.split(" ")[0] for call in calls if call.kind == "commit" for part in call.name.split(", ")}
    # The tracker may still find the remains of the deleted job, at any time.
    names -= {"migrations", "forget_remains"}
    # The service resigns, and perhaps writes events, after the last job.
    assert names | {"resign", "add_events"} == {name for name, where in SQLITE.items() if where == SCENARIO}
    tried = {(call.kind, name) for call in always(calls) for name in ALWAYS if name in call.name}
    assert tried >= {
        ("commit", "delete"),
        ("commit", "update to launching"),
        ("commit", "update to preempted"),
        ("commit", "update to resized"),
        ("commit", "keep_scheduling_notes"),
        ("write", "keep_scheduling_notes"),
        ("read", "read scheduling_notes"),
    }


def test_a_kill_is_survived_and_another_during_the_recovery(
    sweep: Sweep, calls: list[Call], capsys: pytest.CaptureFixture[str]
) -> None:
    first = kills(always(calls))
    sample = random.Random(SEED).sample(kills(calls), KILLS - len(first))
    twice, once = sample[:WITH_RECOVERIES], sample[WITH_RECOVERIES:]
    survives(sweep, [*first, *once, *with_recoveries(twice, SEED)], capsys)


def test_a_failing_call_is_survived(
    sweep: Sweep, calls: list[Call], capsys: pytest.CaptureFixture[str]
) -> None:
    survives(sweep, [*errors(always(calls)), *random.Random(SEED).sample(errors(calls), ERRORS)], capsys)


def test_on_redis_kills_and_failing_calls_of_scheduling_are_survived(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    redis = server_or_skip(tmp_path / "redis")
    redis.start()
    try:
        with closing(Sweep(lambda name: LocalWorld(tmp_path / name, redis))) as sweep:
            calls = sweep.reference()
            # The server gets the text of each script once, also of the scripts that only read.
            names = {call.name.split(" ")[0] for call in calls if call.kind == "script"} - REDIS_READS
            names.discard("forget_remains")  # as with SQLite
            wanted = {name for name, where in REDIS.items() if where == SCENARIO}
            assert names | {"resign", "audit_add"} == wanted
            tried = always(calls)
            wanted = {"update to launching", "update to preempted", "update to resized"}
            assert {call.name for call in tried} >= {*wanted, "notes_keep", "notes"}
            sample = random.Random(SEED).sample(kills(calls), KILLS_ON_REDIS)
            survives(sweep, [*kills(tried), *errors(tried), *sample], capsys)
    finally:
        redis.end()


def test_jobs_survive_a_soak_of_kills_and_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = LocalWorld(tmp_path / "soak")
    with closing(ForkServer(world.wraps)) as forks:
        record = soak(forks, world, SEED, SOAK_SECONDS)
    with capsys.disabled():
        print(f"\nCRASH_SEED={SEED}: {record}")
    print(record.log)
    assert not record.problems, "\n".join(record.problems)

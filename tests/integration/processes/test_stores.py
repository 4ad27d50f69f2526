"""Several stores share one folder of groups: each begins at job 1, and none touches another's groups."""

import logging
from datetime import timedelta
from pathlib import Path

import pytest

from job_tracker.backends.process.backend import ProcessBackend
from job_tracker.domain import naming
from job_tracker.domain.group import Phase
from job_tracker.domain.job import Job
from tests.support.backends import ProcessGroups, groups_of, printed, seen, text_of
from tests.support.jobs import NOON, job, job_of, spec

GRACE = timedelta(seconds=5)
LATER = NOON + timedelta(hours=1)
ONE, OTHER = "1a2b3c4d", "deadbeef"


def job_1(store_id: str) -> Job:
    """Return the first job of a store, or with "" of a store without an id."""
    return job_of(spec(home=naming.home("default", store_id) if store_id else ""))


async def running(world: ProcessGroups, store_id: str) -> ProcessBackend:
    """Run the first job of a store, which prints the store's id, and return the backend."""
    world.add("program", "sh", "-c", f"echo of {store_id or 'none'}; exec sleep 1000")
    backend = world.open(store_id=store_id)
    await backend.launch(job_1(store_id))
    await printed(backend, job_1(store_id).group)
    return backend


async def log_of(backend: ProcessBackend, store_id: str) -> str:
    return await text_of(backend.logs(job_1(store_id).group, 0))


def folders(world: ProcessGroups, place: str) -> list[str]:
    return sorted(path.name for path in (world.root / place).glob("*"))


async def test_each_store_sees_and_stops_only_its_own_groups(
    world: ProcessGroups, caplog: pytest.LogCaptureFixture
) -> None:
    one = await running(world, ONE)
    other = await running(world, OTHER)
    assert folders(world, "live") == [f"{ONE}.program-1", f"{OTHER}.program-1"]
    assert (await log_of(one, ONE), await log_of(other, OTHER)) == (f"of {ONE}\n", f"of {OTHER}\n")

    await other.stop(job_1(OTHER).group, GRACE)
    await other.sweep(NOON, [job_1(OTHER).group])
    for backend in (one, world.open(store_id=ONE)):
        assert {group.home: o.master.status.phase for group, o in (await groups_of(backend)).items()} == {
            naming.home_in_store(ONE): Phase.RUNNING
        }
    assert await groups_of(other) == {}
    assert await log_of(one, ONE) == f"of {ONE}\n"
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any(f"ignoring 1 groups of job stores other than {OTHER}" in text for text in messages)


async def test_kept_groups_of_another_store_are_left_alone(
    world: ProcessGroups,
) -> None:
    one = await running(world, ONE)
    await one.stop(job_1(ONE).group, GRACE, keep_until=NOON)
    other = world.open(store_id=OTHER)
    await other.sweep(LATER)
    assert folders(world, "kept") == [f"{ONE}.program-1"]
    await one.sweep(LATER)
    assert folders(world, "ended") == [f"{ONE}.program-1"]
    assert await world.spool(OTHER).waiting() == []
    await world.spool(OTHER).drop(job_1(OTHER).group)
    await other.sweep(NOON, [job_1(OTHER).group])
    assert await world.spool(ONE).waiting() == [job_1(ONE).group]
    assert await log_of(one, ONE) == f"of {ONE}\n"


async def test_a_job_cannot_change_its_store_by_editing_its_record(world: ProcessGroups) -> None:
    one = await running(world, ONE)
    [record] = world.root.glob("live/*/group.json")
    record.write_text(record.read_text().replace(ONE, OTHER))
    again = world.open(store_id=ONE)
    assert [group.home for group in await groups_of(again)] == [naming.home_in_store(ONE)]
    assert await groups_of(world.open(store_id=OTHER)) == {}
    await one.stop(job_1(ONE).group, GRACE)


async def test_a_group_of_the_previous_version_belongs_to_any_store(world: ProcessGroups) -> None:
    before = await running(world, "")
    await before.close()
    now = world.open(store_id=ONE)
    assert [(group, group.home) for group in await groups_of(now)] == [(job().group, "")]
    await now.stop(job().group, GRACE)
    assert await log_of(now, "") == "of none\n"
    assert folders(world, "live") == []


async def test_a_new_job_does_not_adopt_an_earlier_group_with_its_number(
    world: ProcessGroups, tmp_path: Path
) -> None:
    before = await running(world, "")
    await before.close()
    now = await running(world, ONE)
    await seen(now, job_1(ONE).group, lambda o: o.master.status.phase is Phase.RUNNING)
    assert folders(world, "live") == [f"{ONE}.program-1"]
    assert await log_of(now, ONE) == f"of {ONE}\n"
    assert await log_of(now, "") == "of none\n"

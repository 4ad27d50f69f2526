"""A job that overwrites the service's records fails only its own group, and nothing is left of it."""

import asyncio
import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from job_tracker.backends.process.backend import ProcessBackend
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.errors import LogsNotFound
from job_tracker.domain.group import Phase
from job_tracker.domain.job import Job
from job_tracker.files.untrusted import Place
from job_tracker.logs.records import lines_of
from job_tracker.logs.writing import time_at
from tests.support.backends import ProcessGroups, groups_of, printed, seen, text_of
from tests.support.jobs import NOON, job
from tests.support.patience import PATIENCE

GRACE = timedelta(seconds=2)
FOREVER = {"RUN_SECONDS": "forever", "PRINT": "up"}
GIB = 1 << 30

DEEP = "[" * 200_000
CONTENTS = {
    "nothing": "",
    "one letter": "x",
    "deep nesting": DEEP,
    "not an object": "[]",
    "an invalid error": '{"code": 1, "stopped": false, "oom_kills": 0, "error": "x"}',
    "an invalid pid": '{"supervisor": 99999999999999999999, "child": 1}',
    "infinite numbers": '{"code": 1e400, "stopped": 1, "oom_kills": 1e999, "at": 1e999}',
    "pids of other processes": '{"supervisor": 1, "child": 1}',
}


def _write(text: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.unlink(missing_ok=True)
        path.write_text(text)

    return make


def _pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def _link(target: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    return make


def _huge(path: Path) -> None:
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(64 * GIB)


DAMAGES: dict[str, Callable[[Path], None]] = {
    **{name: _write(text) for name, text in CONTENTS.items()},
    "a pipe": _pipe,
    "a folder": _folder,
    "a link to endless data": _link("/dev/zero"),
    "a link to a terminal": _link("/dev/tty"),
    "a link to itself": _link("itself"),
    "a huge file": _huge,
    "no file": lambda path: path.unlink(missing_ok=True),
}
OF_A_RANK = ("command", "process.json", "exit.json", "lock", "restarts")
OF_A_GROUP = ("group.json", "stop.json", "supervisors.log")


def hostile(job_id: int = 1) -> Job:
    made = job(FOREVER, job_id=job_id, instances=2)
    return replace(made, spec=replace(made.spec, algorithm="program"))


def rank_folder(world: ProcessGroups, group: Job) -> Path:
    return world.root / "live" / group.group.name / f"{group.group.name}-master"


async def begun(backend: ProcessBackend, *groups: Job) -> None:
    """Launch groups, and wait until each rank runs its program: a launch returns just before that."""
    for each in groups:
        await backend.launch(each)
        for rank in range(each.spec.instances):
            await printed(backend, each.group, rank)


def processes_of(world: ProcessGroups, group: Job) -> list[psutil.Process]:
    """Return all processes of the group except for its supervisors."""
    home = str(world.root / "live" / group.group.name)
    return [each for each in psutil.process_iter() if _home(each).startswith(home)]


def _home(process: psutil.Process) -> str:
    try:
        return process.environ().get("HOME", "")
    except psutil.Error:
        return ""


@pytest.mark.parametrize("how", DAMAGES)
async def test_a_damaged_record_affects_no_other_group_and_its_own_can_be_stopped(
    world: ProcessGroups, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("job_tracker.backends.process.rank._RECORD_SECONDS", 0.5)
    spoilers = {name: hostile(number) for number, name in enumerate((*OF_A_RANK, *OF_A_GROUP), start=1)}
    honest = job(FOREVER, job_id=99)
    first = world.open()
    await begun(first, *spoilers.values(), honest)
    processes = [process for each in spoilers.values() for process in processes_of(world, each)]
    assert len(processes) == 2 * len(spoilers)
    for name, spoiler in spoilers.items():
        folder = rank_folder(world, spoiler)
        DAMAGES[how]((folder.parent if name in OF_A_GROUP else folder) / name)

    assert len(await groups_of(first)) == len(spoilers) + 1
    await first.close()
    second = world.open()
    observed = await groups_of(second)
    assert [rank.phase for rank in observed[honest.group].statuses] == [Phase.RUNNING]
    await text_of(second.logs(honest.group, 0))
    await asyncio.gather(*(second.stop(each.group, GRACE) for each in spoilers.values()))
    assert not [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
    observed = await groups_of(second)
    assert {*observed} == {honest.group}
    assert [rank.phase for rank in observed[honest.group].statuses] == [Phase.RUNNING]


@pytest.mark.parametrize("how", ["a pipe", "a link to endless data", "a folder", "a huge file"])
async def test_a_damaged_log_is_not_read_and_delays_nothing(world: ProcessGroups, how: str) -> None:
    backend = world.open()
    await begun(backend, hostile())
    folder = rank_folder(world, hostile()) / "log"
    DAMAGES[how](folder / f"{0:020d}")
    DAMAGES[how](folder / f"{9:020d}")
    assert "up" not in await text_of(backend.logs(hostile().group, 0))
    await text_of(backend.logs(hostile().group, 0, tail_lines=10))
    assert await backend.stop(hostile().group, GRACE) is not None


async def test_a_log_that_is_a_link_is_not_read(world: ProcessGroups, tmp_path: Path) -> None:
    backend = world.open()
    await begun(backend, hostile())
    log = rank_folder(world, hostile()) / "log"
    shutil.move(log, tmp_path / "elsewhere")
    log.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LogsNotFound):
        await text_of(backend.logs(hostile().group, 0))
    await backend.stop(hostile().group, GRACE)


async def test_nothing_is_removed_through_a_link_in_place_of_a_ranks_folder(
    world: ProcessGroups, tmp_path: Path
) -> None:
    backend = world.open()
    await begun(backend, hostile())
    folder, elsewhere = rank_folder(world, hostile()), tmp_path / "elsewhere"
    for name in ("work", "tmp"):
        (elsewhere / name).mkdir(parents=True)
        (elsewhere / name / "precious").touch()
    (elsewhere / "command").touch()
    shutil.move(folder, tmp_path / "moved")
    folder.symlink_to(elsewhere)
    await backend.stop(hostile().group, GRACE)
    await backend.sweep(NOON, [hostile().group])
    assert {path.name for path in elsewhere.rglob("*")} == {"work", "tmp", "precious", "command"}


async def test_folders_nested_deeper_than_the_limit_of_descriptors_are_removed(
    world: ProcessGroups,
) -> None:
    backend = world.open()
    await begun(backend, job(FOREVER))
    place = rank_folder(world, job()) / "work"
    descriptor = os.open(place, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deeper", dir_fd=descriptor)
        below = os.open("deeper", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    await backend.stop(job().group, GRACE)
    assert not list(world.root.glob("*/*/*/work"))


async def test_a_record_with_the_pids_of_another_group_does_not_end_that_group(
    world: ProcessGroups,
) -> None:
    spoiler, honest = job(FOREVER, job_id=1), job(FOREVER, job_id=2)
    first = world.open()
    await begun(first, spoiler, honest)
    mine, others = (rank_folder(world, each) / "process.json" for each in (spoiler, honest))
    pids = json.loads(others.read_text())
    mine.write_text(json.dumps(pids))
    await first.close()
    second = world.open()
    await groups_of(second)
    await second.stop(spoiler.group, GRACE)
    assert all(psutil.pid_exists(pid) for pid in pids.values())
    assert [rank.phase for rank in (await groups_of(second))[honest.group].statuses] == [Phase.RUNNING]


async def test_a_group_whose_folder_is_removed_while_it_runs_fails_and_is_stopped(
    world: ProcessGroups,
) -> None:
    backend = world.open()
    await begun(backend, hostile())
    processes = processes_of(world, hostile())
    shutil.rmtree(world.root)
    failure = (await seen(backend, hostile().group, lambda o: bool(o.first_failure))).first_failure
    assert failure is not None
    assert (failure.category, failure.retryable) == (Category.RECORDS_LOST, True)
    await backend.stop(hostile().group, GRACE)
    assert not [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
    assert await groups_of(backend) == {}


async def test_a_stop_ends_a_group_whose_folder_was_removed_during_downtime(
    world: ProcessGroups,
) -> None:
    first = world.open()
    await begun(first, hostile())
    await first.close()
    processes = processes_of(world, hostile())
    shutil.rmtree(world.root)
    second = world.open()
    assert await groups_of(second) == {}
    assert await second.stop(hostile().group, GRACE) is None
    assert not [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


async def launched(world: ProcessGroups, *groups: Job) -> None:
    """Launch groups with a service that then stops."""
    first = world.open()
    await begun(first, *groups)
    await first.close()


@pytest.mark.parametrize(
    "changed",
    [
        {"roles": ["master", "x/../../x"]},
        {"roles": ["master", "x" * 300]},
        {"roles": ["master", "x\n"]},
        {"roles": ["master", "x\0"]},
        {"roles": ["master", *["worker"] * 50_000]},
        {"ports": [99999999999]},
    ],
    ids=["a path", "a long name", "a line break", "a NUL", "too many", "an invalid port"],
)
async def test_a_record_with_invalid_roles_or_ports_fails_only_its_group(
    world: ProcessGroups, changed: dict[str, object]
) -> None:
    spoiler, honest = hostile(1), job(FOREVER, job_id=2)
    await launched(world, spoiler, honest)
    processes = processes_of(world, spoiler)
    record = rank_folder(world, spoiler).parent / "group.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | changed))
    second = world.open()
    observed = await groups_of(second)
    failure = observed[spoiler.group].first_failure
    assert failure is not None
    assert failure.category is Category.RECORDS_LOST
    assert [rank.phase for rank in observed[honest.group].statuses] == [Phase.RUNNING]
    await second.stop(spoiler.group, GRACE)
    assert not [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
    assert {*await groups_of(second)} == {honest.group}


async def test_a_damaged_group_has_no_more_ranks_than_folders(world: ProcessGroups) -> None:
    spoiler = hostile()
    await launched(world, spoiler)
    folder = rank_folder(world, spoiler).parent
    (folder / "group.json").write_text("")
    for name in ("99998-w", "999999999999999999-w", "4-", "5-\udcff", "7-a b"):
        (folder / f"{spoiler.group.name}-{name}").mkdir()
    second = world.open()
    observed = (await groups_of(second))[spoiler.group]
    assert [rank.phase for rank in observed.statuses] == [Phase.FAILED, Phase.RUNNING, Phase.PENDING]
    await second.stop(spoiler.group, GRACE)


@pytest.mark.parametrize("number", ["9999999999999999999", "1000001", "-1", "2147483648"])
async def test_an_invalid_number_of_restarts_is_ignored(world: ProcessGroups, number: str) -> None:
    spoiler = hostile()
    await launched(world, spoiler)
    (rank_folder(world, spoiler) / "restarts").write_text(number)
    second = world.open()
    assert [rank.restarts for rank in (await groups_of(second))[spoiler.group].statuses] == [0, 0]
    await second.stop(spoiler.group, GRACE)


async def test_a_program_too_large_for_an_answer_is_left_out(world: ProcessGroups) -> None:
    spoiler = hostile()
    await launched(world, spoiler)
    command = rank_folder(world, spoiler) / "command"
    command.write_bytes(b"\0".join((b"", b"1", b"1", b"x" * (4 << 20), b"")))
    second = world.open()
    assert (await groups_of(second))[spoiler.group].program == ""
    await second.stop(spoiler.group, GRACE)


async def test_a_record_with_the_number_of_a_thread_does_not_block_a_stop(world: ProcessGroups) -> None:
    spoiler = hostile()
    await launched(world, spoiler)
    processes = processes_of(world, spoiler)
    record = rank_folder(world, spoiler) / "process.json"
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        record.write_text(json.dumps(json.loads(record.read_text()) | {"supervisor": thread.native_id}))
        second = world.open()
        phases = [rank.phase for rank in (await groups_of(second))[spoiler.group].statuses]
        assert phases == [Phase.FAILED, Phase.RUNNING]
        await second.stop(spoiler.group, GRACE)
    finally:
        over.set()
        thread.join()
    assert not [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
    assert await groups_of(second) == {}


@pytest.mark.parametrize("name", ["command", "secrets.part"])
async def test_a_folder_in_place_of_secrets_is_removed_and_blocks_no_sweep(
    world: ProcessGroups, name: str
) -> None:
    spoiler, honest = hostile(1), hostile(2)
    backend = world.open()
    await begun(backend, spoiler, honest)
    (rank_folder(world, spoiler) / name).unlink(missing_ok=True)
    (rank_folder(world, spoiler) / name / "inside").mkdir(parents=True)
    now = datetime.now(UTC)
    for each in (spoiler, honest):
        await backend.stop(each.group, GRACE, keep_until=now)
    await backend.sweep(now)
    assert {*await world.spool().waiting()} == {spoiler.group, honest.group}
    assert not list(world.root.glob(f"ended/*/*/{name}"))


async def test_a_group_that_cannot_be_cleaned_up_blocks_no_other(
    world: ProcessGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoiler, honest = hostile(1), hostile(2)
    backend = world.open()
    await begun(backend, spoiler, honest)
    now = datetime.now(UTC)
    for each in (spoiler, honest):
        await backend.stop(each.group, GRACE, keep_until=now)
    move = Place.move_to

    def refuse(place: Place, *args: Any, **options: Any) -> None:
        if place.name == spoiler.group.name:
            raise OSError(errno.EIO, "the disk is damaged")
        move(place, *args, **options)

    monkeypatch.setattr(Place, "move_to", refuse)
    await backend.sweep(now)
    assert await world.spool().waiting() == [honest.group]


async def test_forged_log_records_without_a_time_are_dropped(world: ProcessGroups) -> None:
    backend = world.open()
    await begun(backend, hostile())
    log = rank_folder(world, hostile()) / "log"
    for segment in log.iterdir():
        segment.write_bytes(b"x" * 60 + b"\n" + b"short\n" + time_at(0) + b" F a line\n")
    pieces = [piece async for piece in backend.logs(hostile().group, 0)]
    assert [line for piece in pieces for _, line in lines_of(piece)] == ["a line"]


def _close_log(folder: Path) -> None:
    for segment in (folder / "log").iterdir():
        segment.chmod(0)


def _close_records(folder: Path) -> None:
    for name in ("process.json", "lock"):
        (folder / name).chmod(0)


CLOSED: dict[str, Callable[[Path], None]] = {
    "the group's folder": lambda folder: folder.parent.chmod(0),
    "the rank's folder": lambda folder: folder.chmod(0),
    "the group's record": lambda folder: (folder.parent / "group.json").chmod(0),
    "the rank's records": _close_records,
    "its log": _close_log,
    "a folder within": lambda folder: (folder / "work").chmod(0),
}


@pytest.mark.parametrize("is_ended", [False, True], ids=["running", "ended"])
@pytest.mark.parametrize("what", CLOSED)
async def test_files_that_training_made_inaccessible_affect_no_other_group(
    world: ProcessGroups, what: str, is_ended: bool
) -> None:
    spoiler, honest = hostile(1), job(FOREVER, job_id=2)
    await launched(world, spoiler, honest)
    processes = processes_of(world, spoiler)
    folder = rank_folder(world, spoiler)
    child = json.loads((folder / "process.json").read_text())["child"]
    CLOSED[what](folder)
    if is_ended:
        psutil.Process(child).kill()
    second = world.open()
    observed = await groups_of(second)
    assert {*observed} == {spoiler.group, honest.group}
    assert [rank.phase for rank in observed[honest.group].statuses] == [Phase.RUNNING]
    assert {*await groups_of(second)} == {spoiler.group, honest.group}
    with suppress(LogsNotFound):
        await text_of(second.logs(spoiler.group, 0))
    async with asyncio.timeout(PATIENCE):
        await second.stop(spoiler.group, GRACE)
    assert not [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
    assert {*await groups_of(second)} == {honest.group}
    assert await world.spool().waiting() == [spoiler.group]
    await second.sweep(NOON, [spoiler.group])
    assert not list(world.root.glob(f"*/{spoiler.group.name}"))


@pytest.mark.skipif(os.geteuid() != 0, reason="the tests above already ran without these rights")
def test_inaccessible_files_are_tested_without_the_rights_of_root() -> None:
    rights = "-dac_override,-dac_read_search"
    done = subprocess.run(
        [
            *("setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"),
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__),
            *("-k", "test_files_that_training_made_inaccessible"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout

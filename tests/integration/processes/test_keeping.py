"""The files of a stopped group, and how long they stay."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from job_tracker.backends.process import folders
from job_tracker.backends.process.backend import ProcessBackend
from job_tracker.files.untrusted import Place
from tests.support.backends import ProcessGroups, seen
from tests.support.jobs import NOON, job

SHORT = timedelta(seconds=1)
LATER = NOON + timedelta(hours=1)
MESS = "echo weights > weights; echo half > $TMPDIR/half; exit 3"
RECORDS = {"exit.json", "lock", "log", "process.json"}


class Killed(BaseException):
    """An exception that the service never catches."""


async def failed(world: ProcessGroups, program: str = MESS) -> ProcessBackend:
    """Return a backend with a failed group of one rank that left a file in each of its folders."""
    world.add("program", "sh", "-c", program)
    backend = world.open(secret_environment={"KEY": "secret"})
    await backend.launch(job())
    await seen(backend, job().group, lambda o: o.has_ended)
    return backend


def left(world: ProcessGroups, place: str) -> set[str]:
    """Return the relative paths of the rank's files in that place."""
    rank = world.root / place / "program-1" / "program-1-master"
    return {str(path.relative_to(rank)) for path in rank.rglob("*") if path.is_file() or path.name == "log"}


def secrets(world: ProcessGroups) -> list[Path]:
    return [path for path in world.root.rglob("*") if path.is_file() and b"secret" in path.read_bytes()]


async def test_the_working_folders_stay_and_the_secrets_go(world: ProcessGroups) -> None:
    backend = await failed(world)
    assert secrets(world)
    await backend.stop(job().group, SHORT, LATER)
    assert left(world, "kept") == {*RECORDS, "work/weights", "tmp/half"}
    assert secrets(world) == []
    await backend.sweep(LATER)
    assert left(world, "ended") == RECORDS
    assert not list(world.root.glob("kept/*"))
    assert not list(world.root.glob("live/*"))


@pytest.mark.parametrize("until", [None, LATER])
@pytest.mark.parametrize("step", ["_move", "_remove_secrets", "remove", "second _move"])
async def test_the_next_service_cleans_up_after_a_killed_one(
    world: ProcessGroups, monkeypatch: pytest.MonkeyPatch, step: str, until: Any
) -> None:
    first = await failed(world)
    number = 2 if step == "second _move" else 1
    die_at(monkeypatch, step.split()[-1], number)
    killed = until is None or step in ("_move", "_remove_secrets")
    if killed:
        with pytest.raises(Killed):
            await first.stop(job().group, SHORT, until)
    else:
        await first.stop(job().group, SHORT, until)
        with pytest.raises(Killed):
            await first.sweep(LATER)
    monkeypatch.undo()
    second = world.open()
    await second.stop(job().group, SHORT, until)
    await second.sweep(NOON)
    assert secrets(world) == []
    if killed and until is not None:
        assert {"work/weights", "tmp/half"} <= left(world, "kept")
    await second.sweep(LATER)
    assert left(world, "ended") == RECORDS
    assert not list(world.root.glob("kept/*"))
    assert not list(world.root.glob("live/*"))


@pytest.mark.parametrize("content", ["", "[]", '{"until": "tomorrow"}'])
async def test_a_group_with_a_damaged_keep_record_is_not_kept(world: ProcessGroups, content: str) -> None:
    backend = await failed(world)
    await backend.stop(job().group, SHORT, LATER)
    (world.root / "kept" / "program-1" / "keep.json").write_text(content)
    await backend.sweep(NOON)
    assert left(world, "ended") == RECORDS


async def test_a_kept_group_replaces_an_earlier_one_of_the_same_name(world: ProcessGroups) -> None:
    for program in (f"touch first; {MESS}", MESS):
        backend = await failed(world, program)
        await backend.stop(job().group, SHORT, LATER)
    assert left(world, "kept") == {*RECORDS, "work/weights", "tmp/half"}


def die_at(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    """Kill the service before the given call of a function of folders.py."""
    place: Any = Place if name == "remove" else folders
    real, calls = getattr(place, name), []

    def dying(*args: Any, **options: Any) -> Any:
        calls.append(args)
        if len(calls) == number:
            raise Killed
        return real(*args, **options)

    monkeypatch.setattr(place, name, dying)

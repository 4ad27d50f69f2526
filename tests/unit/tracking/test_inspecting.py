"""Positions of ranks as seen from outside: real processes, and hostile output."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from job_tracker.backends.process import beside
from job_tracker.domain.errors import BackendUnavailable, NotPossible
from job_tracker.domain.group import GroupRef
from job_tracker.reports.ranks import MOST_OF_STACKS, Outside
from job_tracker.tracking.inspecting import command, found_in, inspect_by, processes_of
from tests.support.frozen import freeze
from tests.support.inspections import inspected

GROUP = GroupRef("a-1", 1, 1)
KIT = str(Path(__file__).parents[3] / "trainer_images")
PROGRAM = """
import ctypes, os, sys, threading, time
sys.path.insert(0, sys.argv[1])
from trainer_kit import outside
outside.answer()
threading.stack_size(65536)
for _ in range(int(sys.argv[2])):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
def stuck_in_native_code():  # which holds the lock of the interpreter, and goes on after signals
    read, _ = os.pipe()
    print("ready", flush=True)
    ctypes.PyDLL(None).read(read, ctypes.create_string_buffer(1), 1)
stuck_in_native_code()
"""
STUCK = "in stuck_in_native_code\n"


class Beside:
    """Runs the inspector beside a process of this machine."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    async def execute(self, group: GroupRef, rank: int, command: Sequence[str], most_bytes: int) -> bytes:
        return await beside.execute(self.pid, command, most_bytes)


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    made: list[subprocess.Popen[str]] = []
    yield made
    for each in made:
        each.kill()
        each.communicate()


def start(started: list[subprocess.Popen[str]], threads: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, KIT, str(threads)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"RANK": "0"},
    )
    started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


async def seen(process: subprocess.Popen[str], call: str) -> Outside:
    """Inspect the process until its stacks have the call."""
    found = await inspected(Beside(process.pid), GROUP, {0}, lambda found: call in found[0][0].stacks)
    [one] = found[0]
    return one


async def test_a_process_with_thousands_of_threads_whose_lock_is_held_gives_its_main_thread(
    started: list[subprocess.Popen[str]],
) -> None:
    process = start(started, 5000)  # too many for py-spy, so faulthandler answers
    one = await seen(process, STUCK)
    assert one.stacks.startswith("Thread MainThread:\n")
    assert STUCK in one.stacks
    assert len(one.stacks) <= MOST_OF_STACKS
    assert not one.is_stopped


async def test_a_stopped_process_is_read(started: list[subprocess.Popen[str]]) -> None:
    process = start(started, 2)
    freeze(process.pid)
    one = await seen(process, STUCK)
    assert one.is_stopped
    assert "is stopped by a signal (state T)" in one.standing
    assert shutil.which("py-spy", path=str(Path(sys.executable).parent)), (
        "the extra `stacks` is not installed"
    )
    assert STUCK in one.stacks


async def test_files_are_named_from_the_working_folder_of_the_process(
    started: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    program = tmp_path / "package" / "train.py"
    program.parent.mkdir()
    program.write_text("import time\nprint('ready', flush=True)\ntime.sleep(600)\n")
    process = subprocess.Popen(
        [sys.executable, program], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    place = "\n  package/train.py:3 in <module>\n"
    assert place in (await seen(process, place)).stacks


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"{}",
        b'{"processes": 1}',
        b'{"processes": [1]}',
        b'{"processes": [{"pid": "x"}]}',
        b'{"processes": []}',
        json.dumps({"processes": {"a": 1}}).encode(),
    ],
)
def test_hostile_output_is_no_answer(output: bytes) -> None:
    [one] = found_in(output)
    assert one.standing.startswith("could not be looked at: ")
    assert not one.stacks


def test_texts_are_bounded_and_printable() -> None:
    sent: dict[str, Any] = {
        "pid": 7, "name": "\x1b[2J", "standing": "x" * 5000, "kernel": "", "traced_by": 0, "problem": "",
        "state": "T", "stacks": "Thread MainThread:\n\x1b[2J" + "y" * 20_000,
    }  # fmt: skip
    [one, *others] = found_in(json.dumps({"processes": [sent] * 100}).encode())
    assert len(others) < 100
    assert len(one.standing) <= 300
    assert len(one.stacks) <= MOST_OF_STACKS
    assert "\x1b" not in one.standing + one.stacks


async def test_an_engine_that_fails_or_hangs_gives_notes_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("job_tracker.tracking.inspecting._SECONDS", 0.3)

    class Broken:
        async def execute(self, _group: GroupRef, rank: int, _command: Sequence[str], _most: int) -> bytes:
            if rank == 0:
                raise NotPossible("rank 0 does not run")
            if rank == 1:
                raise BackendUnavailable("it is away")
            if rank == 2:
                raise ZeroDivisionError
            await asyncio.sleep(3600)
            raise AssertionError

    found = await inspect_by(Broken())(GROUP, range(40))
    assert [found[rank][0].standing for rank in range(4)] == [
        "could not be looked at: rank 0 does not run",
        "could not be looked at: it is away",
        "could not be looked at: ZeroDivisionError()",
        "could not be looked at in time",
    ]
    assert len(found) == 40


def test_the_processes_of_an_instance_have_the_numbers_of_its_rank() -> None:
    one, two = Outside("one"), Outside("two")
    assert processes_of(3, [one, two], 2, 8) == {6: one, 7: two}
    assert processes_of(3, [one], 2, 8) == {6: one, 7: one}
    assert processes_of(3, [one, two], 1, 8) == {3: one}


def test_the_command_fits_into_an_address() -> None:
    assert sum(map(len, command())) < 8192

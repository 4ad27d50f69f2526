"""The check program of an algorithm: its environment, its answer, and its limits."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from job_tracker.admission.parameter_check import ParameterCheck
from job_tracker.catalog import Algorithm, FixedCatalog
from job_tracker.common.turns import FairTurns
from job_tracker.domain.caller import BUILT_IN, Caller
from job_tracker.domain.errors import InvalidField, LimitExceeded
from job_tracker.domain.job_spec import JobSpec
from tests.support.callers import caller_at
from tests.support.catalog import algorithm_of, fake_resolver, pod_resolver
from tests.support.jobs import spec
from tests.support.patience import PATIENCE

Program = Callable[[str], tuple[str, ...]]


class Checking:
    """A check for specs that are not resolved."""

    def __init__(self, check: ParameterCheck, algorithm: Algorithm) -> None:
        self._check = check
        resolver = pod_resolver if algorithm.recipes else fake_resolver
        self._resolver = resolver({"program": algorithm})

    async def check(self, caller: Caller, wanted: JobSpec) -> None:
        await self._check.check(caller, self._resolver.completed(wanted))


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Return a function that makes a program of shell lines."""

    def made(lines: str) -> tuple[str, ...]:
        path = tmp_path / "check"
        path.write_text(f"#!/bin/sh\n{lines}\n")
        path.chmod(0o700)
        return (str(path), "strict")

    return made


def checking(
    command: tuple[str, ...], *, seconds: float = PATIENCE, turns: FairTurns | None = None, **algorithm: Any
) -> Checking:
    made: Algorithm = algorithm_of(check=command, **algorithm)
    return Checking(ParameterCheck(FixedCatalog({"program": made}), os.defpath, seconds, turns), made)


async def test_the_algorithm_refuses_parameters_with_its_reason(program: Program) -> None:
    check = checking(program('echo "a warning" >&2; echo "HEADS $HEADS is odd" >&2; exit 65'))
    with pytest.raises(InvalidField, match=r"^parameters: HEADS 3 is odd$"):
        await check.check(BUILT_IN, spec({"HEADS": "3"}))


async def test_the_reason_is_one_line_of_limited_length(program: Program) -> None:
    check = checking(program(r"printf 'no\033[2J%05000d\n' 1 >&2; exit 65"))
    with pytest.raises(InvalidField) as refused:
        await check.check(BUILT_IN, spec())
    assert str(refused.value).startswith("parameters: no?[2J000")
    assert len(str(refused.value)) < 1100


async def test_its_environment_has_the_parameters_and_the_world_size_only(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "of the service")
    seen = tmp_path / "seen"
    check = checking(
        program(f'echo "$1" >{seen}; env >>{seen}'),
        framework="pytorch",
        environment={"MODE": "fast"},
        kubernetes={"image": "i:1", "command": ["c"], "nproc_per_node": 2},
    )
    await check.check(BUILT_IN, spec({"LR": "1"}, instances=3))
    first, *lines = seen.read_text().splitlines()
    assert first == "strict"
    environment = dict(line.split("=", 1) for line in lines)
    assert environment.pop("PATH") == os.defpath
    assert environment.pop("PWD")  # set by the shell
    environment.pop("_", None)
    assert environment == {"MODE": "fast", "LR": "1", "WORLD_SIZE": "6"}
    await check.check(BUILT_IN, spec(instances=3, pod_options={"nproc_per_node": 4}))
    assert "WORLD_SIZE=12" in seen.read_text()


async def test_instances_without_training_do_not_count(program: Program, tmp_path: Path) -> None:
    check = checking(
        program(f"echo $WORLD_SIZE >{tmp_path}/seen"), framework="tensorflow", roles={"ps": {"instances": 2}}
    )
    await check.check(BUILT_IN, spec(instances=5, roles={"master": 1, "worker": 2, "ps": 2}))
    assert (tmp_path / "seen").read_text() == "3\n"


@pytest.mark.parametrize("lines", ["echo broken >&2; exit 1", "kill -9 $$"])
async def test_a_failing_program_refuses_nothing_and_is_logged(
    program: Program, lines: str, caplog: pytest.LogCaptureFixture
) -> None:
    await checking(program(lines)).check(BUILT_IN, spec())
    assert "algorithms.program.check failed" in caplog.text


async def test_a_missing_program_refuses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    await checking(("no-such-program",)).check(BUILT_IN, spec())
    assert "no-such-program" in caplog.text


async def test_a_program_that_takes_too_long_is_killed_and_refuses_nothing(
    program: Program, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await checking(program("exec sleep 1000"), seconds=0.5).check(BUILT_IN, spec())
    assert "no answer within 0.5 s" in caplog.text
    ours = [child for child in psutil.Process().children() if str(tmp_path) in " ".join(child.cmdline())]
    assert not [child for child in ours if child.status() != psutil.STATUS_ZOMBIE]


async def test_a_cancelled_call_kills_the_program(program: Program, tmp_path: Path) -> None:
    started = tmp_path / "pid"
    check = checking(program(f"echo $$ >{started}.new; mv {started}.new {started}; exec sleep 1000"))
    calling = asyncio.create_task(check.check(BUILT_IN, spec()))
    while not started.exists():
        await asyncio.sleep(0.01)
    calling.cancel()
    await asyncio.wait([calling])
    assert calling.cancelled()
    assert not psutil.pid_exists(int(started.read_text()))


async def test_an_algorithm_without_a_check_accepts_all_parameters() -> None:
    await checking(()).check(BUILT_IN, spec())


async def check_as(check: Checking, who: str, parameters: dict[str, str]) -> None:
    """Check parameters as this caller."""
    await check.check(caller_at(who), spec(parameters))


@pytest.fixture
def gate(tmp_path: Path, program: Program) -> tuple[Path, tuple[str, ...]]:
    """Return a folder, and a program that writes a file NAME into it and waits for the file `open`."""
    folder = tmp_path / "gate"
    folder.mkdir()
    waits = "while [ ! -e open ]; do sleep 0.01; done"
    return folder, program(f"PATH=/usr/bin:/bin; cd {folder}; : >$NAME; {waits}")


async def started(folder: Path, *names: str) -> None:
    """Return once these checks run."""
    async with asyncio.timeout(PATIENCE):
        while not all((folder / name).exists() for name in names):
            await asyncio.sleep(0.01)


async def test_a_caller_with_many_checks_leaves_a_turn_to_others(
    gate: tuple[Path, tuple[str, ...]],
) -> None:
    folder, command = gate
    check = checking(command)
    async with asyncio.TaskGroup() as calls:
        for number in range(20):
            calls.create_task(check_as(check, "ipv4:192.0.2.1", {"NAME": f"many-{number}"}))
        await started(folder, "many-0", "many-1", "many-2")
        calls.create_task(check_as(check, "ipv4:192.0.2.2", {"NAME": "other"}))
        await started(folder, "other")
        assert not (folder / "many-3").exists()
        (folder / "open").touch()


async def test_a_call_that_waits_too_long_for_a_turn_is_refused_for_now(
    program: Program, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    turns = FairTurns(1, 1)
    await turns.take("ipv4:192.0.2.1")
    check = checking(program(f": >{tmp_path}/ran"), seconds=0.4, turns=turns)
    for who in ("ipv4:192.0.2.1", "ipv4:192.0.2.2"):
        with pytest.raises(
            LimitExceeded, match=r"could not be checked within 0\.2 s, because 1 other requests are"
        ):
            await check_as(check, who, {})
    assert not (tmp_path / "ran").exists()
    assert caplog.text == ""
    turns.give("ipv4:192.0.2.1")
    await check_as(check, "ipv4:192.0.2.2", {})
    assert (tmp_path / "ran").exists() or "no answer" in caplog.text
    assert turns.length == 0

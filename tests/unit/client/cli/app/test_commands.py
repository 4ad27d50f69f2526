"""Common behaviour of all commands: global options, help, and errors for unknown jobs and services."""

from __future__ import annotations

import json
from importlib import metadata
from typing import TYPE_CHECKING

import pytest
import typer
from typer.core import TyperGroup

from tests.support.trainctl import SUBMIT
from training_service._generated import training_service_pb2 as pb
from training_service.client import channel
from training_service.client.cli.app import app
from training_service.client.cli.commands import plan_transformer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl

_COMMANDS = ["status", "describe", "watch", "wait", "logs", "plot", "artifacts", "fetch", "cancel"]


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_job_that_does_not_exist_is_exit_code_3(trainctl: Trainctl, command: str) -> None:
    result = trainctl(command, "42")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == "trainctl: Job 42 doesn't exist\n"


@pytest.mark.parametrize("arguments", [SUBMIT, ("list",), ("status", "1"), ("watch", "1"), ("logs", "1")])
def test_every_command_reports_an_unreachable_service_in_one_line(
    fast_failing: None, trainctl_at: Callable[[str], Trainctl], dead_address: str, arguments: tuple[str, ...]
) -> None:
    for run in (trainctl_at(dead_address), trainctl_at(dead_address).on_terminal):
        result = run(*arguments)
        assert result.exit_code == 4
        assert f"cannot reach the training service at {dead_address}: Connection refused" in result.stderr
        assert result.stderr.count("\n") == 1


def test_a_server_that_does_not_answer_is_reported_in_one_line(
    fast_failing: None,
    trainctl_at: Callable[[str], Trainctl],
    silent_address: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel, "_OPTIONS", [("grpc.min_reconnect_backoff_ms", 200)])
    result = trainctl_at(silent_address)("list")
    assert result.exit_code == 4
    assert (
        f"cannot reach the training service at {silent_address}: connection attempt timed out"
        in result.stderr
    )
    assert result.stderr.count("\n") == 1


def test_global_options_may_precede_or_follow_the_command(
    training: ServerInThread, trainctl_at: Callable[[str], Trainctl]
) -> None:
    training.set_job(1)
    elsewhere = trainctl_at("nowhere.invalid:1")
    for arguments in (
        ("--json", "-a", training.address, "status", "1"),
        ("status", "--json", "1", "--address", training.address),
        ("-a", "nowhere.invalid:2", "status", "1", "-a", training.address, "--json"),
    ):
        assert json.loads(elsewhere(*arguments).stdout)["job_id"] == 1


def test_help_lists_commands_and_exit_codes(trainctl: Trainctl) -> None:
    shown = trainctl("--help").stdout
    for command in ("submit", "list", "status", "watch", "logs", "cancel", "wait"):
        assert command in shown
    for meaning in ("job failed", "no such job", "cannot be reached", "wait timed out", "Ctrl-C"):
        assert meaning in shown


def test_the_version_is_that_of_the_package(trainctl: Trainctl) -> None:
    assert trainctl("--version").stdout == f"trainctl {metadata.version('training-service')}\n"


def test_quiet_prints_only_what_a_script_needs(training: ServerInThread, trainctl: Trainctl) -> None:
    assert trainctl("--quiet", *SUBMIT).stdout == "1\n"
    training.set_job(2, status=pb.running)
    training.set_job(3, status=pb.queuing)
    for run in (trainctl, trainctl.on_terminal):
        assert run("list", "-q").stdout == "3\n2\n1\n"
        assert run("status", "-q", "2").stdout == "running\n"
    cut = trainctl("list", "--quiet", "--limit", "1")
    assert (cut.stdout, cut.stderr) == ("3\n", "")
    assert trainctl("cancel", "3", "-q").stdout == "3\n"
    ended = trainctl("wait", "3", "-q")
    assert (ended.exit_code, ended.stdout) == (5, "")
    followed = trainctl("watch", "3", "-q")
    assert (followed.exit_code, followed.stdout, followed.stderr) == (5, "", "")


def test_quiet_prints_errors(trainctl: Trainctl) -> None:
    result = trainctl("-q", "status", "42")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == "trainctl: Job 42 doesn't exist\n"


def test_quiet_json_is_json_without_notes(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1)
    training.set_job(2)
    result = trainctl("list", "--json", "--quiet", "--limit", "1")
    assert (json.loads(result.stdout)["job_id"], result.stderr) == (2, "")


def test_the_paragraphs_of_the_help_are_wrapped_by_the_terminal() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for name, command in group.commands.items():
        for paragraph in (command.help or "").split("\n\n"):
            assert "\n" not in paragraph, name


def test_a_letter_has_one_meaning_in_all_commands() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    planners = [plan_transformer.command()]
    same = {"--set": "--parameter", "--to": "--output"}  # an addition to the letter, which fits its command
    meanings: dict[str, set[str]] = {}
    for command in [*group.commands.values(), *planners]:
        for option in command.params:
            long = next((name for name in option.opts if name.startswith("--")), "")
            for name in option.opts:
                if len(name) == len("-n") and name.startswith("-"):
                    meanings.setdefault(name, set()).add(same.get(long, long))
    assert meanings["-n"] == {"--instances"}
    assert [(letter, found) for letter, found in meanings.items() if len(found) > 1] == []

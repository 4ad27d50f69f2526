"""Common behaviour of all commands: global options, help, and errors for unknown jobs and services."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.trainctl import SUBMIT

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
    fast_failing: None, trainctl_at: Callable[[str], Trainctl], silent_address: str
) -> None:
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

"""The life of a training process, from its first line to its exit code."""

import contextlib
import io
import logging
import os
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from trainer_kit import termination
from trainer_kit.errors import TrainingError
from trainer_kit.termination import Terminated

if TYPE_CHECKING:  # it needs PyTorch, which a program that joins a group by other means need not have
    from trainer_kit.group import Group

SUCCESS, FAILURE = 0, 1


def main(train: Callable[["Group"], object], check: Callable[[], object] | None = None) -> NoReturn:
    """Runs `train` in its PyTorch group as all that this process does, and ends the process as `run` does.

    `check` is run before the group is joined, so that nobody waits for a process that it refuses. What
    `train` logs at level INFO goes to stdout, from rank 0 only; warnings come from every rank.
    """

    def program() -> None:
        if check is not None:
            check()
        _train_in_group(train)

    run(program)


def run(program: Callable[[], object]) -> NoReturn:
    """Runs `program` as all that this process does, and ends the process.

    The exit code is the result: 0 when `program` returns, 1 when it fails (a TrainingError is told in
    one line, anything else with its traceback), 143 after SIGTERM and 130 after SIGINT.
    """
    _write_lines_as_they_come()
    try:
        termination.listen()
        code = _outcome_of(program)
        termination.ignore()
    except Terminated as told:
        code = told.exit_code
    _end(code)


def _train_in_group(train: Callable[["Group"], object]) -> None:
    from trainer_kit.group import join

    with join() as group:
        logging.basicConfig(
            stream=sys.stdout,
            format="%(message)s",
            level=logging.INFO if group.is_master else logging.WARNING,
        )
        train(group)


def _outcome_of(program: Callable[[], object]) -> int:
    try:
        program()
    except TrainingError as error:
        _tell(f"error: {error}\n")
        return FAILURE
    except SystemExit as leaving:
        return _code_of(leaving)
    except Exception:
        _tell(traceback.format_exc())
        return FAILURE
    return SUCCESS


def _code_of(leaving: SystemExit) -> int:
    """What the interpreter makes of `sys.exit(...)`: nothing, a code, or a last word."""
    if leaving.code is None:
        return SUCCESS
    if isinstance(leaving.code, int):
        return leaving.code & 0xFF
    _tell(f"{leaving.code}\n")
    return FAILURE


def _tell(text: str) -> None:
    """Writes to stderr in one call, so that the words of several processes do not mix."""
    sys.stderr.write(text)


def _write_lines_as_they_come() -> None:
    """Lets nothing wait in a buffer for an end that may come without warning."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)


def _end(code: int) -> NoReturn:
    """Ends the process without the interpreter's own end.

    A process that has used gloo sometimes dies there by SIGABRT ("terminate called without an active
    exception"), which a launcher that reads exit codes takes for a failure.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a closed pipe must not change the result
            stream.flush()
    os._exit(code)

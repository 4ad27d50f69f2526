"""Runs a training function or program as a process: output, signals and exit code."""

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

if TYPE_CHECKING:  # trainer_kit.group needs PyTorch, which programs of other frameworks may lack
    from trainer_kit.group import Group

SUCCESS, FAILURE = 0, 1


def main(train: Callable[["Group"], object], check: Callable[[], object] | None = None) -> NoReturn:
    """Join the PyTorch group of this process, run `train` in it, and end the process like `run`.

    `check` runs before the process joins the group, so no process waits for one that fails the check. Log
    messages of level INFO are printed to stdout by rank 0, and warnings by every rank.
    """

    def program() -> None:
        if check is not None:
            check()
        _train_in_group(train)

    run(program)


def run(program: Callable[[], object]) -> NoReturn:
    """Run `program` and end the process.

    The exit code is 0 if `program` returns, the code of `sys.exit` if it calls that, 1 if it fails, 143 after
    SIGTERM and 130 after SIGINT. A TrainingError is printed in one line, any other exception with its
    traceback.
    """
    _use_line_buffering()
    try:
        termination.listen()
        code = _outcome_of(program)
        termination.ignore()
    except Terminated as terminated:
        code = terminated.exit_code
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
        _print_error(f"error: {error}\n")
        return FAILURE
    except SystemExit as error:
        return _code_of(error)
    except Exception:
        _print_error(traceback.format_exc())
        return FAILURE
    return SUCCESS


def _code_of(error: SystemExit) -> int:
    """Return the exit code that the interpreter would use for the argument of `sys.exit(...)`.

    Like the interpreter, print an argument that is neither None nor an integer.
    """
    if error.code is None:
        return SUCCESS
    if isinstance(error.code, int):
        return error.code & 0xFF
    _print_error(f"{error.code}\n")
    return FAILURE


def _print_error(text: str) -> None:
    """Write to stderr in one call, so that messages of several processes do not mix."""
    sys.stderr.write(text)


def _use_line_buffering() -> None:
    """Flush each line, because the process may be killed at any moment."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)


def _end(code: int) -> NoReturn:
    """End the process without the interpreter's shutdown.

    During the shutdown, a process that has used gloo sometimes dies by SIGABRT ("terminate called without an
    active exception"), which a launcher takes for a failure.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a closed pipe must not change the result
            stream.flush()
    os._exit(code)

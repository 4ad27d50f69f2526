"""Reports errors: one line on standard error for people, and an exit code for scripts."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from training_service.client.cli import exit_codes
from training_service.client.cli.exit_codes import ExitCode
from training_service.client.cli.interrupts import interrupts_kept
from training_service.client.cli.output import remark
from training_service.client.connection import ADDRESS_VARIABLE
from training_service.client.errors import TrainingServiceError, Unreachable

_START_OR_FIND = (
    "Is it running? Start one here with `training-service serve`, "
    f"or give the address of another with --address or {ADDRESS_VARIABLE}."
)


@contextmanager
def errors_reported() -> Iterator[None]:
    """If the block raises an error of the client, print it and exit with its exit code.

    Ctrl-C and a closed output have exit codes, too. An error that is a bug of trainctl is not caught, so it
    is shown with its traceback.
    """
    try:
        try:
            with interrupts_kept():
                yield
        finally:
            sys.stdout.flush()
    except TrainingServiceError as error:
        remark(explanation(error))
        raise typer.Exit(exit_codes.of_error(error)) from error
    except KeyboardInterrupt as interrupt:
        # Users know that they have pressed Ctrl-C, so print a line only if notes say what to do next.
        if notes := getattr(interrupt, "__notes__", ()):
            remark(". ".join(["interrupted", *notes]))
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        _drop_output()
        raise typer.Exit(ExitCode.BROKEN_PIPE) from None


def explanation(error: TrainingServiceError) -> str:
    """Return one line with the problem and the remedy."""
    notes = list(getattr(error, "__notes__", ()))
    if isinstance(error, Unreachable):
        notes.insert(0, _START_OR_FIND)
    *parts, last = [str(error), *notes]
    return ". ".join([*(part.rstrip(".") for part in parts), last])


def _drop_output() -> None:
    """Send buffered output to /dev/null, because the reader of the pipe has closed it.

    Otherwise, the interpreter would fail to flush standard output at its exit.
    """
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)

"""Where errors end: one line for people on standard error, and an exit code for scripts."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from training_service.client.channel import ADDRESS_VARIABLE
from training_service.client.cli import exit_codes
from training_service.client.cli.exit_codes import ExitCode
from training_service.client.cli.output import remark
from training_service.client.errors import TrainingServiceError, Unreachable

_START_OR_FIND = (
    "Is it running? `training-service serve` starts one here; "
    f"--address or {ADDRESS_VARIABLE} names one elsewhere."
)


@contextmanager
def errors_reported() -> Iterator[None]:
    """Within it, what goes wrong between people and service ends the program in good order.

    A mistake in trainctl itself passes, with its traceback.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except TrainingServiceError as error:
        remark(explanation(error))
        raise typer.Exit(exit_codes.of_error(error)) from error
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        _drop_output()
        raise typer.Exit(ExitCode.BROKEN_PIPE) from None


def explanation(error: TrainingServiceError) -> str:
    """What went wrong and what to do about it, in one line."""
    notes = list(getattr(error, "__notes__", ()))
    if isinstance(error, Unreachable):
        notes.insert(0, _START_OR_FIND)
    *parts, last = [str(error), *notes]
    return ". ".join([*(part.rstrip(".") for part in parts), last])


def _drop_output() -> None:
    """Nobody reads on: what is still buffered goes nowhere, so that closing it does not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)

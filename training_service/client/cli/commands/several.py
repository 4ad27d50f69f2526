"""Calls a function for each of several jobs."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

import typer

from training_service.client.cli import exit_codes
from training_service.client.cli.boundary import explanation
from training_service.client.cli.output import remark
from training_service.client.errors import TrainingServiceError, Unavailable, Untrusted

T = TypeVar("T")

_AT_ONCE: Final = 16
"""The largest number of calls at the same time."""


def for_each(jobs: Sequence[int], act: Callable[[int], T], show: Callable[[T], None]) -> None:
    """Call `act` for each job once, in threads. Call `show` for each result, in the order of the jobs.

    Failures are printed in this order, too, and the first one determines the exit code. After Unavailable or
    Untrusted, no further call is made, since it would fail in the same way. The first of these two errors is
    raised when the calls in progress have ended.
    """
    wanted = list(dict.fromkeys(jobs))
    left, tried = deque(wanted), deque[tuple[int, Future[T]]]()
    first: TrainingServiceError | None = None
    lost: Unavailable | Untrusted | None = None
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        at_once = 1  # first a single call: if the service is away, only one job is tried
        while left or tried:
            while left and len(tried) < at_once:
                tried.append((left[0], threads.submit(act, left.popleft())))
            at_once = _AT_ONCE
            job, result = tried.popleft()
            try:
                show(result.result())
            except (Unavailable, Untrusted) as error:
                if lost is None:
                    lost, not_tried = error, [*left]
                    left.clear()
                    if not_tried:
                        lost.add_note(f"Not tried: {', '.join(map(str, not_tried))}")
                else:
                    lost.add_note(f"No answer: {job}")
            except TrainingServiceError as error:
                text = explanation(error)
                names_job = len(wanted) == 1 or text.lower().startswith(f"job {job} ")
                remark(text if names_job else f"job {job}: {text}")
                first = first or error
    if lost is not None:
        raise lost
    if first is not None:
        raise typer.Exit(exit_codes.of_error(first))

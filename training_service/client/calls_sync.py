"""Makes single calls of the service, for plain programs, scripts and notebooks.

Generated from calls_aio.py by scripts/generate-client: change it there.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import Message

from training_service.client.errors import ResourceExhausted
from training_service.client.limit_retry import LimitRetry
from training_service.client.requests import Metadata
from training_service.client.translation import translated_errors

T = TypeVar("T")


def answer_of(
    call: Callable[..., T],
    request: Message,
    timeout: float,
    address: str,
    metadata: Callable[[], Metadata],
) -> T:
    """Make the call, and return its answer. Before each try, `metadata` is called to get the try's metadata.

    If a limit refuses the call, this function waits at least for the time that the service names, and repeats
    the call. All tries and pauses together take at most `timeout` seconds. Raises TrainingServiceError.
    """
    retry, left = LimitRetry(timeout), timeout
    while True:
        try:
            with translated_errors(address):
                return call(request, timeout=left, metadata=metadata())
        except ResourceExhausted as error:
            pause = retry.pause_after(error)
        time.sleep(pause)
        left = retry.time_left()

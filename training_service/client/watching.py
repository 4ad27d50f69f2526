"""What a reader of a stream remembers from one connection to the next, the same for both clients.

WatchTraining begins with the status now, so a broken watch is mended by asking again: at worst a
status that was passed over is missed, which the service may do anyway, and a repeated one is
dropped here. GetTrainingLogs is asked to go on after the last position.
"""

import logging
import random
import time

from training_service._generated.training_service_pb2 import (
    GetTrainingLogsRequest,
    GetTrainingLogsResponse,
    GetTrainingStatusResponse,
    TrainingStatus,
)
from training_service.client.errors import DeadlineExceeded, Unavailable

logger = logging.getLogger(__name__)

_ENDED = frozenset({TrainingStatus.succeed, TrainingStatus.failure, TrainingStatus.cancelled})
_GOING_ON = frozenset({TrainingStatus.queuing, TrainingStatus.launch, TrainingStatus.running})


def has_ended(status: GetTrainingStatusResponse) -> bool:
    """Whether this is a job's last status."""
    return status.status in _ENDED


def goes_on(status: GetTrainingStatusResponse) -> bool:
    """Whether the job has not ended. A status that only a newer service knows is neither."""
    return status.status in _GOING_ON


class Patience:
    """How long to bear with a service that is away: so many seconds at a time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lost_at: float | None = None

    def heard(self) -> None:
        """The service is there."""
        self._lost_at = None

    def pause_after(self, error: Unavailable | DeadlineExceeded) -> float:
        """Seconds to wait before connecting again; raises the error when that is over."""
        now = time.monotonic()
        if self._lost_at is None:
            self._lost_at = now
            logger.info("%s; trying again for %g s", error, self._seconds)
        if now - self._lost_at >= self._seconds:
            raise error
        # The channel backs off while it connects; this only spreads the clients of one service.
        return random.uniform(0.1, 0.5)  # noqa: S311


class Watch:
    """One watch of one job, over as many connections as it takes.

    It bears with a service that is away for at most `patience` seconds at a time, once it has heard
    from it: a service restarts in mid-job, but a wrong address never gives a first status.
    `timeout` bounds the whole watch, in seconds; None: without bound.
    """

    def __init__(self, *, patience: float, timeout: float | None) -> None:
        self._patience = Patience(patience)
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._last: GetTrainingStatusResponse | None = None

    def time_left(self) -> float | None:
        """Seconds until the watch times out, 0 when it has; None: without bound."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def is_news(self, status: GetTrainingStatusResponse) -> bool:
        """Takes a status in, and tells whether it differs from the one before."""
        news = status != self._last
        self._last = status
        self._patience.heard()
        return news

    def check_ended(self) -> None:
        """To be asked when the stream has closed in good order; Unavailable if the job goes on."""
        if self._last is None or goes_on(self._last):
            raise Unavailable("the training service closed the watch before the job had ended")

    def pause_after(self, error: Unavailable) -> float:
        """Seconds to wait before connecting again.

        Raises the error itself when the service was never there or has been away too long, and
        DeadlineExceeded when the watch's own time is up.
        """
        if self._last is None:
            raise error
        pause = self._patience.pause_after(error)
        if self.time_left() == 0:
            raise DeadlineExceeded("the time to watch is up") from error
        return pause


class LogReading:
    """One reading of a job's logs, over as many connections as it takes; its patience is a Watch's."""

    def __init__(self, request: GetTrainingLogsRequest, *, patience: float) -> None:
        self.request = request
        """What to ask for now."""
        self._patience = Patience(patience)

    def advance(self, chunk: GetTrainingLogsResponse) -> None:
        """Takes a chunk in: what is asked for next is what comes after it."""
        self._patience.heard()
        following = GetTrainingLogsRequest()
        following.CopyFrom(self.request)
        following.position = chunk.position
        following.ClearField("tail_lines")
        self.request = following

    def pause_after(self, error: Unavailable) -> float:
        """Seconds to wait before connecting again.

        Raises the error itself when nothing has come so far, when it came from a service that knows no
        positions, and when the service has been away too long.
        """
        if not self.request.position:
            raise error
        return self._patience.pause_after(error)

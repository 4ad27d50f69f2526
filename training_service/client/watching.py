"""What a watch remembers from one connection to the next, the same for both clients.

WatchTraining begins with the status now, so a broken watch is mended by asking again: at worst a
status that was passed over is missed, which the service may do anyway, and a repeated one is
dropped here. A broken log is another matter: see `TrainingClient.logs`.
"""

import logging
import random
import time

from training_service._generated.training_service_pb2 import GetTrainingStatusResponse, TrainingStatus
from training_service.client.errors import DeadlineExceeded, Unavailable

logger = logging.getLogger(__name__)

_ENDED = frozenset({TrainingStatus.succeed, TrainingStatus.failure, TrainingStatus.cancelled})
_GOING_ON = frozenset({TrainingStatus.queuing, TrainingStatus.launch, TrainingStatus.running})


def has_ended(status: GetTrainingStatusResponse) -> bool:
    """Whether this is a job's last status."""
    return status.status in _ENDED


def goes_on(status: GetTrainingStatusResponse) -> bool:
    """Whether the job is still to end; of a status from a newer service nobody here can tell either."""
    return status.status in _GOING_ON


class Watch:
    """One watch of one job, over as many connections as it takes.

    It bears with a service that is away for at most `patience` seconds at a time, once it has heard
    from it: a service restarts in mid-job, but a wrong address never gives a first status.
    `timeout` bounds the whole watch, in seconds; None: without bound.
    """

    def __init__(self, *, patience: float, timeout: float | None) -> None:
        self._patience = patience
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._last: GetTrainingStatusResponse | None = None
        self._lost_at: float | None = None

    def time_left(self) -> float | None:
        """Seconds until the watch times out, 0 when it has; None: without bound."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def is_news(self, status: GetTrainingStatusResponse) -> bool:
        """Takes a status in, and tells whether it differs from the one before."""
        news = status != self._last
        self._last, self._lost_at = status, None
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
        now = time.monotonic()
        if self._lost_at is None:
            self._lost_at = now
            logger.info("%s; trying again for %g s", error, self._patience)
        if now - self._lost_at >= self._patience:
            raise error
        if self.time_left() == 0:
            raise DeadlineExceeded("the time to watch is up") from error
        # The channel backs off while it connects; this only spreads the clients of one service.
        return random.uniform(0.1, 0.5)  # noqa: S311

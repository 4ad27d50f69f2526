"""The state with which a stream continues after a lost connection, for the plain and the asyncio client.

WatchTraining starts with the current status, so a broken watch is started again. The new watch may miss an
intermediate status, like every slow reader. A repeated status is dropped. GetTrainingLogs is started again
with the last position that was received.
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
    """Return whether this is a job's last status."""
    return status.status in _ENDED


def goes_on(status: GetTrainingStatusResponse) -> bool:
    """Return whether the job has not ended. For an unknown status, this and `has_ended` are both false."""
    return status.status in _GOING_ON


class Patience:
    """The time that remains for retries while the service is away.

    It starts anew when the service answers.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lost_at: float | None = None

    def heard(self) -> None:
        """Start the time anew, because the service has answered."""
        self._lost_at = None

    def pause_after(self, error: Unavailable | DeadlineExceeded) -> float:
        """Return the seconds to wait before the next try. Raises `error` if the time is up."""
        now = time.monotonic()
        if self._lost_at is None:
            self._lost_at = now
            logger.info("%s; retrying for %g s", error, self._seconds)
        if now - self._lost_at >= self._seconds:
            raise error
        # The channel backs off while it connects. This pause only spreads the clients of one service.
        return random.uniform(0.1, 0.5)  # noqa: S311


class Watch:
    """One watch of one job, over any number of connections.

    After the first status, it retries for up to `patience` seconds while the service is away. Before the
    first status, errors are final, since the address may be wrong. `timeout` bounds the whole watch, in
    seconds; None means no bound.
    """

    def __init__(self, *, patience: float, timeout: float | None) -> None:
        self._patience = Patience(patience)
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._last: GetTrainingStatusResponse | None = None

    def time_left(self) -> float | None:
        """Return the seconds until the watch times out, at least 0; None means no bound."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def is_news(self, status: GetTrainingStatusResponse) -> bool:
        """Store a new status, and return whether it differs from the previous one."""
        news = status != self._last
        self._last = status
        self._patience.heard()
        return news

    def check_ended(self) -> None:
        """Check a stream that closed without an error.

        Raises Unavailable if no status has arrived, or if `goes_on` is true for the last status.
        """
        if self._last is None or goes_on(self._last):
            raise Unavailable("the training service closed the watch before the job had ended")

    def pause_after(self, error: Unavailable) -> float:
        """Return the seconds to wait before connecting again.

        Raises `error` if the service never answered or has been away too long, and DeadlineExceeded if the
        watch has timed out.
        """
        if self._last is None:
            raise error
        pause = self._patience.pause_after(error)
        if self.time_left() == 0:
            raise DeadlineExceeded("the watch timed out") from error
        return pause


class LogReading:
    """One reading of a job's logs, over any number of connections. `patience` is as in Watch."""

    def __init__(self, request: GetTrainingLogsRequest, *, patience: float) -> None:
        self.request = request
        """The request for the rest of the log."""
        self._patience = Patience(patience)

    def advance(self, chunk: GetTrainingLogsResponse) -> None:
        """Change the request so that it continues after this chunk."""
        self._patience.heard()
        following = GetTrainingLogsRequest()
        following.CopyFrom(self.request)
        following.position = chunk.position
        following.ClearField("tail_lines")
        self.request = following

    def pause_after(self, error: Unavailable) -> float:
        """Return the seconds to wait before connecting again.

        Raises `error` if the service has been away too long. Also raises it if the request has no position,
        because no chunk has arrived yet or the service sends no positions.
        """
        if not self.request.position:
            raise error
        return self._patience.pause_after(error)

"""Sends reports to the service from a background thread, so that training does not wait for them.

A failure to report does not affect the training.

While the service is away, a limited number of reports is kept. If the service refuses a report because the
attempt is over or the token is not valid, sending stops. If the service has not accepted all reports by the
end, the last progress and the artifacts are printed, because the service reads the log once it is back. If
reports cannot be sent, for example because the installed protobuf is too old, they are printed.
"""

import logging
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from trainer_kit import collectives, stacks
from trainer_kit.report_sinks import Artifact, Progress, StdoutSink
from trainer_kit.steps import Steps

T = TypeVar("T")

log = logging.getLogger(__name__)

_MAX_WAITING = 10_000
_MAX_PER_CALL = 1_000
_CALL_SECONDS = 5.0
_RECONNECT_SECONDS = 5.0
_CHANNEL = [
    # A new channel makes a new connection, which may lead to another replica of the service.
    ("grpc.use_local_subchannel_pool", 1),
    # By default, gRPC waits for up to 120 s before it connects again, and for 20 s for an answer.
    ("grpc.initial_reconnect_backoff_ms", 1000),
    ("grpc.min_reconnect_backoff_ms", round(1000 * _RECONNECT_SECONDS)),
    ("grpc.max_reconnect_backoff_ms", round(1000 * _RECONNECT_SECONDS)),
]
_SYSTEM_ROOTS = "system"
_PEM = "-----BEGIN "
_CLOSE_SECONDS = 3.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 8.0
"""Seconds between reports: the default, and the longest pause after failures.

With gRPC's own pause (_RECONNECT_SECONDS), at most 15 s pass until a service that is back gets reports again.
"""
_LONGEST_ASKED_PAUSE = 30.0
"""The longest pause in seconds that the service may ask for."""
_SHORTEST_PAUSE = 0.1
"""The shortest pause in seconds after a failure, while `close` waits."""
_LOOK_SECONDS = 1.0
_DETAILS_HEADER = "grpc-status-details-bin"
_MOST_SENT_OF_STACKS = 8 * 1024  # characters; the log has all

Send = Callable[[Any], Any]
"""Sends a ReportRequest and returns the ReportResponse; raises grpc.RpcError."""


class GrpcSink:
    """Sends collected reports at the pace that the service requests; see Sink."""

    def __init__(
        self,
        address: str,
        token: str,
        connect: "Callable[[str, str], Send] | None" = None,
        *,
        ca: str = "",
        rank: int = 0,
        steps: Steps | None = None,
    ) -> None:
        """Start the thread that sends.

        `ca` names the certificate authorities to trust, for a service with TLS: PEM text, the path of a PEM
        file, or `system` for those that gRPC trusts by default. Empty: no TLS. With `steps`, each report has
        the position of this process, and reports are sent regularly even without news.
        """
        self._connect = connect or partial(_connect, ca=ca)
        self._address, self._token = address, token
        self._known = self._accepted = Progress()
        self._metrics: deque[tuple[str, float, int, float]] = deque(maxlen=_MAX_WAITING)
        self._artifacts: deque[Artifact] = deque(maxlen=_MAX_WAITING)
        self._sending: list[Artifact] = []
        # Held while reports move between these collections, so that `_print_unaccepted` does not miss any.
        self._moving = threading.Lock()
        self._rank, self._steps = rank, steps
        self._stacks = ""
        self._printed = StdoutSink()
        self._cannot_send = False
        self._news = threading.Event()
        self._closing, self._given_up = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)
        self._thread.start()

    def progress(self, known: Progress, fresh: Mapping[str, float]) -> None:
        self._known = known
        now = time.time()
        self._note_move()
        self._metrics.extend((name, value, known.step or 0, now) for name, value in fresh.items())
        self._news.set()
        if self._cannot_send:
            self._print_unaccepted()

    def artifact(self, artifact: Artifact) -> None:
        self._artifacts.append(artifact)
        self._note_move()
        self._news.set()
        if self._cannot_send:
            self._print_unaccepted()

    def _note_move(self) -> None:
        if self._steps is not None:
            self._steps.has_moved()

    def close(self) -> None:
        """Send the waiting reports. If the service is away, print progress and artifacts after 3 s."""
        if self._steps is not None:
            self._steps.end()
        self._closing.set()
        self._news.set()
        self._thread.join(_CLOSE_SECONDS)
        self._given_up.set()
        self._print_unaccepted()
        self._printed.close()

    def _print_unaccepted(self) -> None:
        with self._moving:  # the thread may still be in a call
            unaccepted = (*self._sending, *self._artifacts)
            self._sending = []
            self._artifacts.clear()
        for artifact in unaccepted:
            self._printed.artifact(artifact)
        if (known := self._known) is not self._accepted:
            self._accepted = known
            self._printed.progress(known, {})

    def _run(self) -> None:
        try:
            while self._send_until_closed(self._connect(self._address, self._token)):
                pass
        except Exception:  # training continues after any failure
            log.warning("reports cannot be sent: they are printed", exc_info=True)
            self._cannot_send = True
            self._print_unaccepted()

    def _send_until_closed(self, send: Send) -> bool:
        """Send reports. Return true if the caller should connect anew, and false when reporting has ended."""
        import grpc

        pause = _FIRST_PAUSE
        while self._steps is not None or self._news.wait():
            closing = self._closing.is_set()
            least = quiet = 0.0
            has_news = self._news.is_set()
            self._news.clear()
            known = self._known
            with self._moving:
                metrics = _taken(self._metrics)
                self._sending = _taken(self._artifacts)
            request = self._request(known if has_news else Progress(), metrics)
            try:
                answer = send(request)
            except grpc.RpcError as error:
                if error.code() in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAUTHENTICATED):
                    log.warning("progress is no longer reported: %s", error.details())
                    return False
                with self._moving:
                    self._metrics.extendleft(reversed(metrics[-self._room :]))
                    self._artifacts.extendleft(reversed(self._sending))
                    self._sending = []
                self._news.set()
                pause = min(2 * pause, _LONGEST_PAUSE) * random.uniform(0.8, 1)  # noqa: S311
                least = max(_SHORTEST_PAUSE, min(_retry_after(error), _LONGEST_ASKED_PAUSE))
            else:
                self._accepted = known if has_news else self._accepted
                self._sending = []
                pause = max(_FIRST_PAUSE, _seconds(answer.pause))
                quiet = _seconds(answer.quiet_pause)
                for problem in answer.problems:
                    log.warning("the service dropped part of a report: %s", problem)
                if answer.wants_stacks and not self._stacks and not closing:
                    self._stacks = _written_stacks(self._rank)
                    continue  # the service waits for the stacks
                self._stacks = ""
                if self._metrics or self._artifacts:
                    self._news.set()
                if answer.reconnect and not closing:
                    self._closing.wait(pause)
                    return True
            if self._given_up.is_set() or (closing and not (self._metrics or self._artifacts)):
                return False
            # A `quiet_pause` shorter than `pause` means: report after `quiet_pause`, with or without news.
            sooner = min(pause, quiet) if quiet > 0 else pause
            if closing or self._wait(self._closing, max(sooner, least)):
                if self._metrics or self._artifacts:  # `close` waits, so send them soon
                    self._given_up.wait(least)
            elif self._steps is not None:
                self._wait(self._news, quiet - pause)  # `close` sets `_news`, too
        return False

    def _wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait for the event for at most `seconds`, and return whether it is set.

        With `steps`, record regularly where in the program the main thread is (stacks.place).
        """
        if self._steps is None:
            return event.wait(seconds)
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > _LOOK_SECONDS:
            if event.wait(_LOOK_SECONDS):
                return True
            self._steps.seen_at(stacks.place())
        return event.wait(left)

    @property
    def _room(self) -> int:
        return max(1, _MAX_WAITING - len(self._metrics))

    def _request(self, known: Progress, metrics: list[tuple[str, float, int, float]]) -> Any:
        from google.protobuf.timestamp_pb2 import Timestamp

        from trainer_kit._generated import training_reporter_pb2 as pb

        return pb.ReportRequest(
            step=known.step,
            total_steps=known.total_steps,
            epoch=known.epoch,
            total_epochs=known.total_epochs,
            metrics=[
                pb.MetricValue(
                    name=name,
                    value=value,
                    step=step,
                    at=Timestamp(seconds=int(at), nanos=int(at % 1 * 1e9)),
                )
                for name, value, step, at in metrics
            ],
            artifacts=[
                pb.ReportedArtifact(name=a.name, uri=a.uri, kind=a.kind, size=a.size, sha256=a.sha256)
                for a in self._sending
            ],
            rank=self._standing(),
        )

    def _standing(self) -> Any:
        """Return the position of this process for a report; None if it does not report its position."""
        from trainer_kit._generated import training_reporter_pb2 as pb

        if self._steps is None:
            return None
        place = stacks.place()
        self._steps.seen_at(place)
        now = self._steps.standing()
        return pb.RankProgress(
            rank=self._rank,
            step=now.step,
            longest_step=now.longest_step,
            step_seconds=now.step_seconds,
            waiting_seconds=now.waiting_seconds,
            waiting=now.waiting,
            phase=now.phase,
            moved_ago=now.moved_ago,
            place=place,
            still_for=now.still_for,
            stacks=self._stacks[:_MOST_SENT_OF_STACKS],
            collectives=[
                pb.CollectiveOperation(
                    group=each.group,
                    number=each.number,
                    operation=each.operation,
                    sizes=each.sizes,
                    done=each.done,
                )
                for each in (collectives.last() if self._stacks else ())
            ],
        )


def _taken(waiting: deque[T]) -> list[T]:
    """Remove the entries for one call from a queue, and return them."""
    return [waiting.popleft() for _ in range(min(len(waiting), _MAX_PER_CALL))]


def _written_stacks(rank: int) -> str:
    """Write the stacks of all threads to stderr, so that the rank's log keeps them, and return them."""
    found = stacks.of_all_threads()
    sys.stderr.write(
        f"rank {rank}: the service asked for the stacks of its threads, innermost call last:\n{found}"
    )
    if operations := collectives.lines():
        sys.stderr.write(f"rank {rank}: its collective operations, the latest last:\n{operations}")
    sys.stderr.flush()
    return found


def _seconds(duration: Any) -> float:
    return float(duration.seconds + duration.nanos / 1e9)


def _retry_after(error: Any) -> float:
    """Return the seconds after which the service wants a retry (google.rpc.RetryInfo); 0 if unknown."""
    if not hasattr(error, "trailing_metadata"):
        return 0.0
    try:
        from google.protobuf.message import DecodeError
        from google.rpc.error_details_pb2 import RetryInfo
        from google.rpc.status_pb2 import Status
    except ImportError:  # an environment without the extra `reports`
        return 0.0
    info = RetryInfo()
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_HEADER:
            try:
                if any(detail.Unpack(info) for detail in Status.FromString(value).details):
                    return max(0.0, _seconds(info.retry_delay))
            except DecodeError:
                return 0.0
    return 0.0


def _connect(address: str, token: str, ca: str = "") -> Send:
    import grpc

    from trainer_kit._generated import training_reporter_pb2 as pb

    if ca:
        channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(_roots(ca)), _CHANNEL)
    else:
        channel = grpc.insecure_channel(address, _CHANNEL)
    report = channel.unary_unary(
        "/training.TrainingReporter/Report",
        request_serializer=pb.ReportRequest.SerializeToString,
        response_deserializer=pb.ReportResponse.FromString,
    )
    metadata = (("authorization", f"Bearer {token}"),)
    return lambda request: report(request, metadata=metadata, timeout=_CALL_SECONDS)


def _roots(ca: str) -> bytes | None:
    """Return the certificate authorities as PEM. None: the authorities that gRPC trusts by default."""
    if ca == _SYSTEM_ROOTS:
        return None
    return ca.encode() if ca.startswith(_PEM) else Path(ca).read_bytes()

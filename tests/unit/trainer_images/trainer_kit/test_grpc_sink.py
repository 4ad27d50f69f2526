"""Reports as calls: all of them arrive, and their failure does not affect the training."""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from trainer_kit import grpc_sink
from trainer_kit._generated import training_reporter_pb2 as pb
from trainer_kit.grpc_sink import GrpcSink, _connect, _retry_after, _roots
from trainer_kit.progress import Reporter
from trainer_kit.report_sinks import ARTIFACT, PROGRESS, Artifact
from trainer_kit.steps import Steps

from tests.support.patience import PATIENCE


@pytest.fixture(autouse=True)
def patient_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the thread of the reports end as late as it does on a busy machine."""
    monkeypatch.setattr(grpc_sink, "_CLOSE_SECONDS", PATIENCE)


class Refusal(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode, metadata: tuple[tuple[str, bytes], ...] = ()) -> None:
        super().__init__()
        self._code = code
        self._metadata = metadata

    def trailing_metadata(self) -> Any:
        return self._metadata

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "no"


class Service:
    """A service with prepared answers."""

    def __init__(self) -> None:
        self.received: list[pb.ReportRequest] = []
        self.failures: list[Exception] = []
        self.arrived = threading.Semaphore(0)
        self.hold: threading.Event | None = None

    def connect(self, address: str, token: str) -> Callable[[Any], Any]:
        assert (address, token) == ("service:51001", "token")
        return self.answer

    def answer(self, request: pb.ReportRequest) -> pb.ReportResponse:
        self.arrived.release()
        if self.hold:
            assert self.hold.wait(PATIENCE)
        if self.failures:
            raise self.failures.pop(0)
        self.received.append(request)
        return pb.ReportResponse()

    @property
    def values(self) -> list[tuple[str, int, float]]:
        return [(m.name, m.step, m.value) for request in self.received for m in request.metrics]


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def reporter(service: Service) -> Reporter:
    return Reporter(GrpcSink("service:51001", "token", service.connect))


def test_all_reports_arrive(service: Service, reporter: Reporter) -> None:
    for step in range(1, 2501):
        reporter.report(step=step, total_steps=2500, loss=1 / step)
    reporter.artifact("model.pt", "uri", kind="model", size=7)
    reporter.close()
    assert service.values == [("loss", step, 1 / step) for step in range(1, 2501)]
    assert all(len(request.metrics) <= 1000 for request in service.received)
    assert (service.received[-1].step, service.received[-1].total_steps) == (2500, 2500)
    assert [a.name for request in service.received for a in request.artifacts] == ["model.pt"]


def test_unknown_values_are_not_sent(service: Service, reporter: Reporter) -> None:
    reporter.report(epoch=2)
    reporter.close()
    assert not service.received[0].HasField("step")
    assert service.received[0].epoch == 2


def test_training_does_not_wait_for_a_slow_service(service: Service, reporter: Reporter) -> None:
    service.hold = threading.Event()
    reporter.report(step=1)
    assert service.arrived.acquire(timeout=PATIENCE)
    for step in range(1000):
        reporter.report(step=step, loss=1.0)
    service.hold.set()  # otherwise, the service would answer after minutes, and with an error
    reporter.close()
    assert len(service.values) == 1000


def test_failed_reports_are_sent_later_once_and_in_order(service: Service, reporter: Reporter) -> None:
    service.failures = [Refusal(grpc.StatusCode.UNAVAILABLE), Refusal(grpc.StatusCode.DEADLINE_EXCEEDED)]
    for step in range(5):
        reporter.report(step=step, loss=float(step))
    for _ in range(2):
        assert service.arrived.acquire(timeout=PATIENCE)
    reporter.close()
    assert service.values == [("loss", step, float(step)) for step in range(5)]


def limited(seconds: float) -> Refusal:
    """A refusal that says when to repeat the call."""
    info, status = RetryInfo(), Status()
    info.retry_delay.FromTimedelta(timedelta(seconds=seconds))
    status.details.add().Pack(info)
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    return Refusal(code, (("grpc-status-details-bin", status.SerializeToString()),))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds for which the thread of reports would wait. It does not wait."""
    pauses: list[float] = []
    # The thread waits for the end of the training, at most for this time.
    wait = threading.Event.wait

    def waited(event: threading.Event, seconds: float | None = None) -> bool:
        if seconds is not None and threading.current_thread().name == "reports":
            pauses.append(seconds)
            seconds = 0.01
        return wait(event, seconds)

    monkeypatch.setattr(threading.Event, "wait", waited)
    return pauses


def test_reports_wait_as_long_as_the_service_says(service: Service, pauses: list[float]) -> None:
    service.failures = [limited(12.5), limited(10_000)]
    reporter = Reporter(GrpcSink("service:51001", "token", service.connect))
    reporter.report(step=1, loss=0.5)
    for _ in range(3):
        assert service.arrived.acquire(timeout=PATIENCE)
    reporter.close()
    assert pauses[:2] == [12.5, 30.0], "at most half a minute"
    assert service.values == [("loss", 1, 0.5)]


def test_a_service_that_is_back_gets_reports_within_fifteen_seconds(
    service: Service, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    service.failures = [Refusal(grpc.StatusCode.UNAVAILABLE) for _ in range(20)]
    reporter = Reporter(GrpcSink("service:51001", "token", service.connect))
    reporter.report(step=1, loss=0.5)
    for _ in range(21):
        assert service.arrived.acquire(timeout=PATIENCE)
    reporter.close()
    given: dict[str, int] = {}

    def channel(_: str, options: list[tuple[str, int]]) -> grpc.Channel:
        given.update(options)
        return open_channel("localhost:1")

    open_channel = grpc.insecure_channel
    monkeypatch.setattr(grpc, "insecure_channel", channel)
    _connect("localhost:1", "token")
    # gRPC lengthens each pause by up to a fifth.
    of_grpc = 1.2 * max(given["grpc.max_reconnect_backoff_ms"], given["grpc.min_reconnect_backoff_ms"]) / 1000
    assert len(pauses) >= 20
    assert of_grpc + max(pauses) <= 15


def test_the_last_reports_wait_too(service: Service) -> None:
    service.failures = [limited(0.3)]
    reporter = Reporter(GrpcSink("service:51001", "token", service.connect))
    started = time.perf_counter()
    reporter.report(step=1, loss=0.5)
    reporter.close()
    assert service.values == [("loss", 1, 0.5)]
    assert time.perf_counter() - started >= 0.3


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("grpc-status-details-bin", b"\xff\xff"),),
        (("grpc-status-details-bin", b""),),
        (("other", b"x"),),
    ],
)
def test_a_refusal_without_a_time_is_none(metadata: tuple[tuple[str, bytes], ...]) -> None:
    assert _retry_after(Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, metadata)) == 0
    assert _retry_after(RuntimeError("no metadata")) == 0


@pytest.mark.parametrize("code", [grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAUTHENTICATED])
def test_a_service_that_refuses_reports_gets_no_more(
    service: Service, reporter: Reporter, code: grpc.StatusCode, caplog: pytest.LogCaptureFixture
) -> None:
    service.failures = [Refusal(code)]
    reporter.report(step=1)
    assert service.arrived.acquire(timeout=PATIENCE)
    reporter.report(step=2)
    reporter.close()
    assert service.received == []
    assert "progress is no longer reported: no" in caplog.text


def test_a_service_that_stays_away_does_not_delay_the_end(
    service: Service, reporter: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_sink, "_CLOSE_SECONDS", 1.0)
    service.failures = [Refusal(grpc.StatusCode.UNAVAILABLE)] * 1000
    reporter.report(step=1, loss=1.0)
    started = time.perf_counter()
    reporter.close()
    assert time.perf_counter() - started < 60
    assert len(service.failures) > 900, "it pauses after each failure"


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED])
def test_what_the_service_has_not_accepted_is_printed_at_the_end(
    service: Service,
    reporter: Reporter,
    code: grpc.StatusCode,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_sink, "_CLOSE_SECONDS", 1.0)
    service.failures = [Refusal(code)] * 1000
    reporter.report(step=1, total_steps=2, loss=1.0)
    assert service.arrived.acquire(timeout=PATIENCE)
    reporter.report(step=2, accuracy=0.5)
    reporter.artifact("model.pt", "file:///model.pt", kind="model")
    reporter.close()
    assert capsys.readouterr().out.splitlines() == [
        '::artifact:: {"name": "model.pt", "uri": "file:///model.pt", "kind": "model"}',
        '::progress:: {"step": 2, "total_steps": 2, "metrics": {"loss": 1.0, "accuracy": 0.5}}',
    ]


class Watched(deque[Artifact]):
    """A queue that announces when artifacts come back into it, and takes its time with them."""

    def __init__(self) -> None:
        super().__init__()
        self.has_some_back, self.is_printed = threading.Event(), threading.Event()

    def extendleft(self, artifacts: Iterable[Artifact]) -> None:
        super().extendleft(artifacts)
        self.has_some_back.set()
        self.is_printed.wait(0.2)


def test_an_artifact_that_comes_back_from_a_failed_call_is_printed_once(
    service: Service, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_sink, "_CLOSE_SECONDS", 0.0)
    service.failures = [Refusal(grpc.StatusCode.UNAVAILABLE)] * 1000
    sink = GrpcSink("service:51001", "token", service.connect)
    sink._artifacts = watched = Watched()
    sink.artifact(Artifact("model.pt", "file:///model.pt"))
    assert watched.has_some_back.wait(PATIENCE)
    sink.close()
    watched.is_printed.set()
    sink._thread.join(PATIENCE)
    printed = capsys.readouterr().out.splitlines()
    assert printed == ['::artifact:: {"name": "model.pt", "uri": "file:///model.pt"}']


def test_what_the_service_has_accepted_is_not_printed(
    service: Service, reporter: Reporter, capsys: pytest.CaptureFixture[str]
) -> None:
    service.failures = [Refusal(grpc.StatusCode.UNAVAILABLE)]
    reporter.report(step=1, loss=1.0)
    reporter.artifact("model.pt", "file:///model.pt")
    reporter.close()
    assert len(service.received) == 1
    assert capsys.readouterr().out == ""


def test_the_oldest_reports_are_dropped_if_too_many_wait(service: Service, reporter: Reporter) -> None:
    service.hold = threading.Event()
    reporter.report(step=0)
    assert service.arrived.acquire(timeout=PATIENCE)
    for step in range(30_000):
        reporter.report(step=step, loss=1.0)
    service.hold.set()
    reporter.close()
    assert len(service.values) == 10_000
    assert service.values[-1] == ("loss", 29_999, 1.0)


def test_an_unexpected_error_does_not_affect_the_training(service: Service, reporter: Reporter) -> None:
    service.failures = [RuntimeError("a bug")]
    reporter.report(step=1)
    assert service.arrived.acquire(timeout=PATIENCE)
    reporter.report(step=2)
    reporter.close()


def test_the_authorities_are_text_or_a_file_or_those_of_grpc(tmp_path: Path) -> None:
    pem = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    (tmp_path / "ca.pem").write_text(pem)
    assert _roots(pem) == _roots(str(tmp_path / "ca.pem")) == pem.encode()
    assert _roots("system") is None


def test_authorities_that_cannot_be_used_end_the_reports_but_not_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = GrpcSink("service:51001", "token", ca=str(tmp_path / "missing.pem"))
    sink.close()
    assert ["reports cannot be sent" in record.message for record in caplog.records] == [True]


def test_reports_that_cannot_be_sent_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    def connect(address: str, token: str) -> Callable[[Any], Any]:
        raise ImportError("protobuf is too old")

    sink = GrpcSink("service:51001", "token", connect)
    reporter = Reporter(sink)
    reporter.report(step=1, loss=0.5)
    sink._thread.join(PATIENCE)
    reporter.artifact("model", "s3://models/1")
    for step in (2, 3):
        reporter.report(step=step)
    reporter.close()
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith(ARTIFACT) for line in lines) == 1
    progress = [line.removeprefix(PROGRESS) for line in lines if line.startswith(PROGRESS)]
    steps = [json.loads(line)["step"] for line in progress]
    assert (steps[0], steps[-1], len(set(steps))) == (1, 3, len(steps))


class Watching(Service):
    """A service that asks for stacks, or for another connection."""

    def __init__(self, *answers: pb.ReportResponse) -> None:
        super().__init__()
        self.answers = list(answers)
        self.connections = 0

    def connect(self, address: str, token: str) -> Callable[[Any], Any]:
        self.connections += 1
        return super().connect(address, token)

    def answer(self, request: pb.ReportRequest) -> pb.ReportResponse:
        super().answer(request)
        return self.answers.pop(0) if self.answers else pb.ReportResponse()


def test_a_rank_reports_where_it_stands_even_without_news() -> None:
    service, signs = Watching(), Steps()
    signs.step(7)
    sink = GrpcSink("service:51001", "token", service.connect, rank=3, steps=signs)
    assert service.arrived.acquire(timeout=PATIENCE)
    sink.close()
    first, last = service.received[0], service.received[-1]
    assert (first.rank.rank, first.rank.step, first.rank.phase) == (3, 7, "training")
    assert first.rank.place != 0
    assert not first.HasField("step")
    assert last.rank.phase == "done"


def test_progress_does_not_wait_for_the_next_sign_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_sink, "_FIRST_PAUSE", 0.01)
    quiet = pb.ReportResponse()
    quiet.quiet_pause.FromTimedelta(timedelta(hours=1))
    service = Watching(quiet, quiet)
    reporter = Reporter(GrpcSink("service:51001", "token", service.connect, steps=Steps()))
    assert service.arrived.acquire(timeout=PATIENCE)
    assert not service.arrived.acquire(timeout=0.1), "nothing is new"
    reporter.report(step=5, loss=0.5)
    assert service.arrived.acquire(timeout=PATIENCE)
    reporter.close()
    assert service.values == [("loss", 5, 0.5)]
    assert service.received[-1].rank.phase == "done"


def test_a_rank_looks_where_it_stands_while_it_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_sink, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(grpc_sink, "_LOOK_SECONDS", 0.01)
    looked = threading.Semaphore(0)

    class Seen(Steps):
        def seen_at(self, place: int) -> None:
            super().seen_at(place)
            looked.release()

    quiet = pb.ReportResponse()
    quiet.quiet_pause.FromTimedelta(timedelta(hours=1))
    service = Watching(quiet)
    sink = GrpcSink("service:51001", "token", service.connect, steps=Seen())
    for _ in range(5):
        assert looked.acquire(timeout=PATIENCE)
    assert len(service.received) == 1
    assert service.received[0].rank.HasField("still_for")
    sink.close()


def test_stacks_are_sent_and_written_when_the_service_asks(capsys: pytest.CaptureFixture[str]) -> None:
    service = Watching(pb.ReportResponse(wants_stacks=True), pb.ReportResponse(wants_stacks=True))
    sink = GrpcSink("service:51001", "token", service.connect, rank=3, steps=Steps())
    assert service.arrived.acquire(timeout=PATIENCE)
    assert service.arrived.acquire(timeout=PATIENCE)
    sink.close()
    assert service.received[0].rank.stacks == ""
    assert service.received[1].rank.stacks.startswith("Thread MainThread:\n")
    assert service.received[2].rank.stacks == ""
    written = capsys.readouterr().err
    assert written.startswith(
        "rank 3: the service asked for the stacks of its threads, innermost call last:\nThread MainThread:"
    )
    # A service that asks again at once does not fill the log.
    assert written.count("the service asked for the stacks") == 1


def test_a_rank_looks_for_the_replica_that_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_sink, "_FIRST_PAUSE", 0.01)
    service = Watching(pb.ReportResponse(reconnect=True))
    sink = GrpcSink("service:51001", "token", service.connect, steps=Steps())
    assert service.arrived.acquire(timeout=PATIENCE)
    assert service.arrived.acquire(timeout=PATIENCE)
    sink.close()
    assert service.connections == 2

import io
import json
import math
from collections.abc import Mapping
from itertools import pairwise
from types import SimpleNamespace

import pytest
from trainer_kit.progress import Reporter
from trainer_kit.report_sinks import ARTIFACT, PROGRESS, Artifact, Progress, StdoutSink


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Heard:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.reports: list[tuple[Progress, Mapping[str, float]]] = []
        self.artifacts: list[Artifact] = []
        self.closed = False

    def progress(self, known: Progress, fresh: Mapping[str, float]) -> None:
        self.reports.append((known, fresh))

    def artifact(self, artifact: Artifact) -> None:
        self.artifacts.append(artifact)

    def close(self) -> None:
        self.closed = True


class Stdout(io.StringIO):
    """Counts calls, and the reports in them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def write(self, text: str) -> int:
        self.calls.append(text)
        return len(text)

    def flush(self) -> None:
        self.calls.append("flush")

    @property
    def reports(self) -> list[dict[str, object]]:
        return [json.loads(call.partition(" ")[2]) for call in self.calls if call != "flush"]


@pytest.fixture
def stdout(monkeypatch: pytest.MonkeyPatch) -> Stdout:
    stream = Stdout()
    # Not sys.stdout itself, which pytest sets anew between a fixture and its test.
    monkeypatch.setattr("trainer_kit.report_sinks.sys", SimpleNamespace(stdout=stream))
    return stream


def test_a_report_is_one_line_with_a_marker_and_json_written_in_one_call(stdout: Stdout) -> None:
    Reporter(StdoutSink()).report(step=12, total_steps=36, epoch=2, total_epochs=6, loss=0.5)
    report = '{"step": 12, "total_steps": 36, "epoch": 2, "total_epochs": 6, "metrics": {"loss": 0.5}}'
    assert stdout.calls == [f"{PROGRESS} {report}\n", "flush"]


def test_what_is_not_known_is_left_out(stdout: Stdout) -> None:
    Reporter(StdoutSink()).report(step=0)
    assert stdout.calls == ['::progress:: {"step": 0}\n', "flush"]


def test_lines_keep_their_distance_and_the_last_one_always_goes_out(stdout: Stdout) -> None:
    clock, written_at = Clock(), list[float]()
    reporter = Reporter(StdoutSink(interval=0.5, clock=clock))
    for step in range(1, 1001):
        before = len(stdout.calls)
        reporter.report(step=step)
        if len(stdout.calls) > before:
            written_at.append(clock.now)
        clock.now += 0.01
    reporter.close()
    assert 19 <= len(stdout.reports) <= 22
    assert all(later - earlier >= 0.5 for earlier, later in pairwise(written_at))
    assert (stdout.reports[0]["step"], stdout.reports[-1]["step"]) == (1, 1000)


def test_what_was_held_back_is_in_the_next_line(stdout: Stdout) -> None:
    clock = Clock()
    reporter = Reporter(StdoutSink(clock=clock))
    reporter.report(step=1, total_steps=9, loss=2.0)
    reporter.report(epoch=1, validation_accuracy=0.5)
    reporter.report(step=2, loss=1.0)
    clock.now += 1
    reporter.report(step=3)
    assert stdout.reports[-1] == {
        "step": 3,
        "total_steps": 9,
        "epoch": 1,
        "metrics": {"loss": 1.0, "validation_accuracy": 0.5},
    }


def test_closing_repeats_nothing(stdout: Stdout) -> None:
    reporter = Reporter(StdoutSink())
    reporter.close()
    reporter.report(step=1)
    reporter.close()
    reporter.close()
    assert stdout.reports == [{"step": 1}]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_metric_that_is_not_finite_is_left_out(value: float) -> None:
    heard = Heard()
    Reporter(heard).report(step=1, loss=value, accuracy=0.5)
    assert heard.reports == [(Progress(step=1, metrics={"accuracy": 0.5}), {"accuracy": 0.5})]


def test_a_sink_hears_all_that_is_known_and_what_of_it_is_new() -> None:
    heard = Heard()
    reporter = Reporter(heard)
    reporter.report(step=1, loss=2.0)
    reporter.report(step=2, accuracy=0.5)
    reporter.close()
    assert heard.reports[-1] == (Progress(step=2, metrics={"loss": 2.0, "accuracy": 0.5}), {"accuracy": 0.5})
    assert heard.closed


def test_what_was_made_is_a_line_of_its_own(stdout: Stdout) -> None:
    Reporter(StdoutSink()).artifact("model.pt", "s3://models/7/model.pt", kind="model", size=3)
    report = '{"name": "model.pt", "uri": "s3://models/7/model.pt", "kind": "model", "size": 3}'
    assert stdout.calls == [f"{ARTIFACT} {report}\n", "flush"]

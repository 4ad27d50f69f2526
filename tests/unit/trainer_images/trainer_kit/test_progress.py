import io
import json
import math
from collections.abc import Mapping
from itertools import pairwise
from types import SimpleNamespace

import pytest
from trainer_kit import progress, steps
from trainer_kit.progress import Reporter
from trainer_kit.report_sinks import ARTIFACT, PROGRESS, Artifact, Progress, StdoutSink


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class RecordingSink:
    """A sink that records reports."""

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
    """A stream that records calls and the reports in them."""

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
    # Do not patch sys.stdout itself, which pytest replaces between a fixture and its test.
    monkeypatch.setattr("trainer_kit.report_sinks.sys", SimpleNamespace(stdout=stream))
    return stream


def test_a_report_is_one_line_with_a_marker_and_json_written_in_one_call(stdout: Stdout) -> None:
    Reporter(StdoutSink()).report(step=12, total_steps=36, epoch=2, total_epochs=6, loss=0.5)
    report = '{"step": 12, "total_steps": 36, "epoch": 2, "total_epochs": 6, "metrics": {"loss": 0.5}}'
    assert stdout.calls == [f"{PROGRESS} {report}\n", "flush"]


def test_unknown_values_are_left_out(stdout: Stdout) -> None:
    Reporter(StdoutSink()).report(step=0)
    assert stdout.calls == ['::progress:: {"step": 0}\n', "flush"]


def test_lines_keep_their_interval_and_the_last_one_is_always_printed(stdout: Stdout) -> None:
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


def test_values_between_two_lines_are_in_the_next_line(stdout: Stdout) -> None:
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


@pytest.mark.parametrize(
    ("value", "text"), [(math.nan, '"NaN"'), (math.inf, '"Infinity"'), (-math.inf, '"-Infinity"')]
)
def test_a_metric_that_is_not_finite_is_reported_as_text_since_json_has_no_such_number(
    value: float, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = RecordingSink()
    Reporter(sink).report(step=1, loss=value)
    assert str(sink.reports[0][1]["loss"]) == str(value)
    Reporter(StdoutSink()).report(step=1, loss=value)
    assert capsys.readouterr().out == f'::progress:: {{"step": 1, "metrics": {{"loss": {text}}}}}\n'


def test_a_sink_gets_the_known_progress_and_the_new_metrics() -> None:
    sink = RecordingSink()
    reporter = Reporter(sink)
    reporter.report(step=1, loss=2.0)
    reporter.report(step=2, accuracy=0.5)
    reporter.close()
    assert sink.reports[-1] == (Progress(step=2, metrics={"loss": 2.0, "accuracy": 0.5}), {"accuracy": 0.5})
    assert sink.closed


def test_an_artifact_is_a_separate_line(stdout: Stdout) -> None:
    Reporter(StdoutSink()).artifact("model.pt", "s3://models/7/model.pt", kind="model", size=3)
    report = '{"name": "model.pt", "uri": "s3://models/7/model.pt", "kind": "model", "size": 3}'
    assert stdout.calls == [f"{ARTIFACT} {report}\n", "flush"]


@pytest.mark.parametrize(
    ("variables", "process"),
    [
        ({}, 5),
        ({"PET_NODE_RANK": "2"}, 2),
        ({"PET_NODE_RANK": "2", "LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "1"}, 9),
    ],
)
def test_a_process_that_torchrun_started_reports_as_part_of_its_instance(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], process: int
) -> None:
    for name in ("PET_NODE_RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert progress._process_of(5) == process


def test_examples_of_a_step_give_the_examples_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, sink = Clock(), RecordingSink()
    monkeypatch.setattr(steps, "OF_PROCESS", steps.Steps(clock))
    reporter = Reporter(sink)
    for step, seconds in ((1, 5.0), (2, 0.5), (3, 0.25)):
        clock.now += seconds
        reporter.report(step=step, examples=100)
    rates = [fresh.get("examples_per_second") for _, fresh in sink.reports]
    assert rates == [None, 200, 400], "the time of the first step is not known"

import io
import json
import math
import sys
from itertools import pairwise

import pytest
from trainer_kit.progress import MARKER, Progress, Reporter, write_line


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_report_is_one_line_with_a_marker_and_json() -> None:
    progress = Progress(step=12, total_steps=36, epoch=2, total_epochs=6, metrics={"loss": 0.5})
    marker, _, report = progress.line().partition(" ")
    assert marker == "::progress::"
    assert report == (
        '{"step": 12, "total_steps": 36, "epoch": 2, "total_epochs": 6, "metrics": {"loss": 0.5}}\n'
    )


def test_what_is_not_known_is_left_out() -> None:
    assert Progress(step=0).line() == '::progress:: {"step": 0}\n'


def test_reports_keep_their_distance_and_the_last_one_always_goes_out() -> None:
    clock, sent_at, sent = Clock(), list[float](), list[Progress]()

    def sink(progress: Progress) -> None:
        sent_at.append(clock.now)
        sent.append(progress)

    reporter = Reporter(sink, interval=0.5, clock=clock)
    for step in range(1, 1001):
        reporter.report(step=step)
        clock.now += 0.01
    reporter.close()

    assert 19 <= len(sent) <= 22
    assert all(later - earlier >= 0.5 for earlier, later in pairwise(sent_at[:-1]))
    assert (sent[0].step, sent[-1].step) == (1, 1000)


def test_what_was_held_back_is_in_the_next_report() -> None:
    clock, sent = Clock(), list[Progress]()
    reporter = Reporter(sent.append, clock=clock)
    reporter.report(step=1, total_steps=9, loss=2.0)
    reporter.report(epoch=1, validation_accuracy=0.5)
    reporter.report(step=2, loss=1.0)
    clock.now += 1
    reporter.report(step=3)
    assert sent[-1] == Progress(
        step=3, total_steps=9, epoch=1, metrics={"loss": 1.0, "validation_accuracy": 0.5}
    )


def test_closing_repeats_nothing() -> None:
    sent = list[Progress]()
    reporter = Reporter(sent.append)
    reporter.close()
    reporter.report(step=1)
    reporter.close()
    reporter.close()
    assert sent == [Progress(step=1)]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_metric_that_is_not_finite_is_left_out(value: float) -> None:
    sent = list[Progress]()
    Reporter(sent.append).report(step=1, loss=value, accuracy=0.5)
    assert json.loads(sent[0].line().removeprefix(MARKER)) == {"step": 1, "metrics": {"accuracy": 0.5}}


def test_a_line_is_written_in_one_call_and_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[str]()

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            calls.append(text)
            return len(text)

        def flush(self) -> None:
            calls.append("flush")

    monkeypatch.setattr(sys, "stdout", Stream())
    write_line(Progress(step=1))
    assert calls == ['::progress:: {"step": 1}\n', "flush"]

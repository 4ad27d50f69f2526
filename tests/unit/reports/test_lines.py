"""Reports as printed lines: which are accepted, and which are ignored."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_tracker.domain.progress import Progress, Saved
from job_tracker.domain.telemetry import Artifact, MetricPoint
from job_tracker.reports.lines import ARTIFACT, PROGRESS, parse
from job_tracker.reports.report import MOST_METRICS, Report, advanced
from tests.support.jobs import NOON

LATER = NOON + timedelta(hours=1)  # the time of reading, which is not used
LAST = Progress(step=1, total_steps=9, metrics={"loss": 1.0})


def line(content: object) -> str:
    return PROGRESS + json.dumps(content)


def artifact(content: object) -> str:
    return ARTIFACT + json.dumps(content)


def read(text: str, at: float = 0) -> Report:
    """The report in a line that was printed this number of seconds after noon."""
    report = parse(text, NOON + timedelta(seconds=at), LAST.step)
    assert report is not None
    return report


def after(text: str) -> Progress:
    return advanced(LAST, read(text), NOON)


def test_a_report_replaces_only_the_values_it_has() -> None:
    now = after(line({"step": 2, "epoch": 1, "metrics": {"accuracy": 0.5}}))
    assert (now.step, now.total_steps, now.epoch) == (2, 9, 1)
    assert now.metrics == {"loss": 1.0, "accuracy": 0.5}
    assert now.reported_at == NOON


def test_metrics_belong_to_the_step_of_the_line_or_to_the_last_step() -> None:
    point = MetricPoint("loss", 2, NOON, 0.5)
    assert read(line({"step": 2, "metrics": {"loss": 0.5}})).points == (point,)
    assert read(line({"metrics": {"loss": 0.5}})).points == (MetricPoint("loss", 1, NOON, 0.5),)


@pytest.mark.parametrize(
    "text",
    ["", "loss 0.4", "::progress::", PROGRESS, PROGRESS + "{", line([1]), line(3), PROGRESS + "[" * 100_000],
)
def test_other_lines_are_not_reports(text: str) -> None:
    assert parse(text, NOON, 1) is None


@pytest.mark.parametrize("value", [-1, 1.5, "2", None, True, 2**80, [1]])
def test_invalid_counts_are_ignored(value: object) -> None:
    now = after(line({"step": value, "epoch": 4}))
    assert (now.step, now.epoch) == (1, 4)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"loss": 1e301}', "metric loss: 1e+301 is not allowed; it must be a number"),
        ('{"loss": "x"}', "metric loss: 'x' is not allowed; it must be a number"),
        ('{"loss": null}', "metric loss: None is not allowed; it must be a number"),
        ('{"loss": true}', "metric loss: True is not allowed; it must be a number"),
        ('{"a\\nb": 1}', "metric 'a\\nb': the name must have 1 to 128 printable characters"),
        ('{"": 1}', "metric '': the name must"),
    ],
)
def test_invalid_metrics_are_dropped_and_named(text: str, problem: str) -> None:
    report = read(f'{PROGRESS}{{"metrics": {text}}}')
    assert report.points == ()
    assert [text[: len(problem)] for text in report.problems] == [problem]
    assert advanced(LAST, report, NOON).metrics == {"loss": 1.0}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("NaN", "nan"), ('"NaN"', "nan"), ("Infinity", "inf"), ('"Infinity"', "inf"), ("1e999", "inf")),
        *(("-Infinity", "-inf"), ('"-Infinity"', "-inf")),
        *(
            ("nan", "nan"),
            ("-nan", "nan"),
            ("inf", "inf"),
            ("-inf", "-inf"),
            ('"nan"', "nan"),
            ('"INF"', "inf"),
        ),
    ],
)
def test_nan_and_infinity_are_kept_and_their_first_step_is_known(text: str, value: str) -> None:
    first = read(f'{PROGRESS}{{"step": 5, "metrics": {{"loss": {text}, "score": 1}}}}')
    assert [(point.name, str(point.value)) for point in first.points] == [("loss", value), ("score", "1.0")]
    now = advanced(LAST, first, NOON)
    assert str(now.metrics["loss"]) == value
    [bad] = now.nonfinite
    assert (bad.metric, str(bad.value), bad.step, bad.rank) == ("loss", value, 5, 0)
    again = advanced(now, replace(first, counts={"step": 9}), NOON)
    assert again.nonfinite == now.nonfinite


def test_the_number_of_metrics_that_are_not_finite_is_bounded() -> None:
    many = after(line({"metrics": {f"m{n}": "NaN" for n in range(1_000)}}))
    assert len(many.nonfinite) == MOST_METRICS
    losses = read(line({"metrics": {f"loss{n}": "NaN" for n in range(9)}}))
    assert advanced(many, losses, NOON).nonfinite == many.nonfinite
    forbidden = advanced(many, losses, NOON, lambda name: "loss" in name)
    assert [each.metric for each in forbidden.nonfinite[MOST_METRICS:]] == ["loss0"]


def test_the_number_of_metrics_is_bounded_and_known_ones_are_updated() -> None:
    many = {f"metric-{number}": number for number in range(1_000)}
    now = after(line({"metrics": many}))
    assert len(now.metrics) == MOST_METRICS
    again = advanced(now, read(line({"metrics": {"loss": 0.5}})), NOON)
    assert again.metrics["loss"] == 0.5


def test_a_line_can_report_an_artifact() -> None:
    made = {"name": "model.pt", "uri": "s3://m/7/model.pt", "kind": "model", "size": 3, "sha256": "ab" * 32}
    assert read(ARTIFACT + json.dumps(made)).artifacts == (Artifact(**made, at=NOON),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": ""}, "the name must have"),
        ({"name": "../secrets"}, "the name must have"),
        ({"uri": ""}, "uri '' must have"),
        ({"uri": "x" * 5000}, "must have 1 to 2048"),
        ({"size": -1}, "size -1 must be a number of bytes"),
        ({"size": "big"}, "size 'big' must be a number of bytes"),
        ({"sha256": "xyz"}, "sha256 'xyz' must have 64"),
        ({"kind": 7}, "kind 7"),
    ],
)
def test_an_invalid_artifact_is_dropped_and_named(change: dict[str, object], problem: str) -> None:
    report = read(ARTIFACT + json.dumps({"name": "m", "uri": "u", **change}))
    assert report.artifacts == ()
    assert problem in report.problems[0]


def test_speed_is_smoothed_steps_per_second_and_gives_the_remaining_time() -> None:
    now = Progress()
    for second, step in enumerate((0, 10, 20, 30)):
        now = advanced(now, read(line({"step": step, "total_steps": 100}), second), LATER)
    assert now.speed == pytest.approx(10)
    assert now.seconds_left == pytest.approx(7)
    # A report without a step leaves the speed as it is, and the next step is measured from the last one.
    idle = advanced(now, read(line({"metrics": {"loss": 1}}), 4), LATER)
    assert idle.speed == now.speed
    late = advanced(idle, read(line({"step": 40}), 5), LATER)
    assert late.speed == pytest.approx(0.3 * 5 + 0.7 * 10)
    # Repeated steps, and a clock that was set back, give no speed.
    assert advanced(late, read(line({"step": 3}), 6), LATER).speed == 0
    assert advanced(late, read(line({"step": 50})), LATER).speed == late.speed


def test_lines_flushed_together_do_not_count_as_fast_steps() -> None:
    now = Progress()
    for second in range(4):  # a program whose output is buffered: 36 lines a second, a microsecond apart
        for number in range(36):
            printed = second + number / 1_000_000
            now = advanced(now, read(line({"step": 36 * second + number}), printed), LATER)
    assert now.speed == pytest.approx(36, rel=0.01)


@given(st.text())
def test_no_text_raises_an_error(text: str) -> None:
    for candidate in (text, PROGRESS + text, ARTIFACT + text, line({"metrics": {text: 1}, "step": text})):
        if report := parse(candidate, NOON, 1):
            advanced(LAST, report, NOON)


def test_the_progress_keeps_the_first_step_and_the_last_checkpoint() -> None:
    first = advanced(LAST, read(line({"step": 0}), 1), LATER)
    assert (first.first_step_at, first.saved) == (None, None)
    begun = advanced(first, read(line({"step": 40}), 5), LATER)
    assert begun.first_step_at == NOON + timedelta(seconds=5)
    kit = {"name": "checkpoint", "kind": "checkpoint", "uri": "/c/attempt-1.1.ab.step-000000000038"}
    saved = advanced(begun, read(artifact(kit), 7), LATER)
    assert saved.saved == Saved(38, NOON + timedelta(seconds=7))
    assert saved.first_step_at == begun.first_step_at
    another = advanced(
        saved, read(artifact({"name": "mine", "kind": "checkpoint", "uri": "/m.pt"}), 9), LATER
    )
    assert another.saved == Saved(40, NOON + timedelta(seconds=9)), "its own step is not in its location"
    model = advanced(another, read(artifact({"name": "m", "kind": "model", "uri": "/m/step-7"}), 9), LATER)
    assert model.saved == another.saved
    assert [step for step, _ in model.saves.some] == [38, 40]
    assert advanced(model, read(artifact(kit), 7), LATER).saves.count == 3
    again = advanced(saved, read(artifact(kit), 7), LATER)
    assert again.saves.count == 1, "a line that is read again counts once"

"""Progress lines: what is understood, and what is shrugged off."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_tracker.model import Progress
from job_tracker.progress import MARKER, parse
from tests.support.jobs import NOON

LAST = Progress(step=1, total_steps=9, metrics={"loss": 1.0})


def line(content: object) -> str:
    return MARKER + json.dumps(content)


def test_a_report_replaces_what_it_names_and_keeps_the_rest() -> None:
    report = line({"step": 2, "epoch": 1, "metrics": {"accuracy": 0.5}})
    assert parse(report, LAST, NOON) == Progress(2, 9, 1, 0, {"loss": 1.0, "accuracy": 0.5}, NOON)


@pytest.mark.parametrize(
    "text", ["", "loss 0.4", "::progress::", MARKER, MARKER + "{", line([1]), line(3), MARKER + "[" * 100_000]
)
def test_other_lines_are_no_reports(text: str) -> None:
    assert parse(text, LAST, NOON) is None


@pytest.mark.parametrize("value", [-1, 1.5, "2", None, True, 2**80, [1]])
def test_counts_that_are_none_are_ignored(value: object) -> None:
    reported = parse(line({"step": value, "epoch": 4}), LAST, NOON)
    assert reported is not None
    assert (reported.step, reported.epoch) == (1, 4)


@pytest.mark.parametrize(
    "text",
    [
        '{"loss": NaN}',
        '{"loss": Infinity}',
        '{"loss": 1e999}',
        '{"loss": "x"}',
        '{"a\\nb": 1}',
        '{"": 1}',
        "7",
    ],
)
def test_metrics_that_are_none_are_ignored(text: str) -> None:
    reported = parse(f'{MARKER}{{"metrics": {text}}}', LAST, NOON)
    assert reported is not None
    assert reported.metrics == {"loss": 1.0}


def test_the_number_of_metrics_is_bounded_and_known_ones_go_on() -> None:
    many = {f"metric-{number}": number for number in range(1_000)}
    reported = parse(line({"metrics": many}), LAST, NOON)
    assert reported is not None
    assert len(reported.metrics) == 64
    again = parse(line({"metrics": {"loss": 0.5}}), reported, NOON)
    assert again is not None
    assert again.metrics["loss"] == 0.5


@given(st.text())
def test_no_text_makes_it_fail(text: str) -> None:
    for candidate in (text, MARKER + text, MARKER + json.dumps({"metrics": {text: 1}, "step": text})):
        parse(candidate, LAST, NOON)

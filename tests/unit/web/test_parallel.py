"""Jobs of a sweep are lines over the parameters in which they differ, and rows of a table."""

import math
from dataclasses import replace

from job_tracker.domain.job import Job
from job_tracker.domain.progress import Progress
from tests.support.jobs import job
from training_service.web.parallel import MOST_AXES, parallel_of


def trial(number: int, result: float | None = None, /, **parameters: str) -> Job:
    metrics = {"accuracy": result} if result is not None else {}
    return replace(job(parameters, job_id=number), progress=Progress(metrics=metrics))


def test_only_parameters_that_differ_have_an_axis_and_the_metric_is_the_last() -> None:
    found = parallel_of([trial(1, 0.5, LR="1", EPOCHS="3"), trial(2, 0.7, LR="3", EPOCHS="3")])
    assert [axis.name for axis in found.axes] == ["LR", "accuracy"]
    assert [line.points for line in found.lines] == ["0.00,100.00 100.00,100.00", "0.00,0.00 100.00,0.00"]
    assert [[label.text for label in axis.labels] for axis in found.axes] == [["1", "3"], ["0.5", "0.7"]]
    assert [row.job.id for row in found.rows] == [2, 1]
    assert [line.shade for line in found.lines] == [1, 5]
    assert found.lines[1].label == "Job 2: LR 3, accuracy 0.7"


def test_wide_ranges_are_logarithmic_and_words_lie_beside_each_other() -> None:
    rates, kinds = ("0.001", "0.01", "0.1"), ("adam", "sgd", "lion")
    found = parallel_of(
        [
            trial(i, 0.1 * i, LR=rate, KIND=kind)
            for i, (rate, kind) in enumerate(zip(rates, kinds, strict=True), 1)
        ]
    )
    rate, kind, _ = found.axes
    assert rate.is_logarithmic
    assert not kind.is_logarithmic
    assert [label.text for label in kind.labels] == ["adam", "lion", "sgd"]
    assert found.lines[1].points.startswith("0.00,50.00 50.00,0.00")


def test_a_job_without_a_result_ends_before_the_metric_and_is_the_last_row() -> None:
    found = parallel_of([trial(1, None, LR="1"), trial(2, math.nan, LR="2"), trial(3, 0.7)])
    assert [len(line.points.split()) for line in found.lines] == [1, 1, 2]
    assert [line.shade for line in found.lines] == [0, 0, 5]
    assert found.rows[0].job.id == 3
    assert found.rows[0].values == ["not set"]


def test_a_metric_can_be_chosen_and_an_unknown_one_is_not() -> None:
    both = replace(trial(1, LR="1"), progress=Progress(metrics={"accuracy": 0.5, "loss": 2.0}))
    jobs = [both, trial(2, 0.7, LR="2")]
    assert parallel_of(jobs).metric == "accuracy"
    assert parallel_of(jobs, "loss").metric == "loss"
    assert parallel_of(jobs, "<b>").metric == "accuracy"
    assert parallel_of(jobs).metrics == ["accuracy", "loss"]


def test_alike_jobs_and_none_have_no_picture() -> None:
    assert parallel_of([]).axes == []
    assert parallel_of([trial(1, 0.5, LR="1"), trial(2, 0.6, LR="1")]).axes == []


def test_there_are_not_too_many_axes() -> None:
    names = [f"P{number}" for number in range(30)]
    found = parallel_of([trial(i, 0.1, **dict.fromkeys(names, str(i))) for i in (1, 2)])
    assert len(found.axes) == MOST_AXES + 1
    assert len(found.rows[0].values) == 30

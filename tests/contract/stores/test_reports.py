"""The contract of stores: reports, their limits, and their deletion."""

import math
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.domain.progress import Nonfinite, Progress
from job_tracker.domain.telemetry import (
    MAX_ARTIFACTS,
    MAX_POINTS,
    MAX_SERIES,
    Artifact,
    AttemptReport,
    MetricPoint,
    SeriesPoint,
)
from job_tracker.store.base import Store
from tests.support.jobs import NOON, spec
from tests.support.stores import Reopen


async def running(store: Store) -> Job:
    job = await store.submit(spec(), NOON, None, 1000)
    return await store.update((await store.update(job.admitted(NOON))).running(NOON))


async def report(store: Store, job: Job, **given: Any) -> bool:
    values: dict[str, Any] = {"job_id": job.id, "attempt": job.attempt, "at": NOON, **given}
    [accepted] = await store.record_reports([AttemptReport(**values)])
    return accepted


def points(name: str, steps: range) -> tuple[MetricPoint, ...]:
    return tuple(MetricPoint(name, step, NOON + timedelta(seconds=step), step / 7) for step in steps)


async def test_series_are_read_back_whole_by_name(store: Store, reopen: Reopen) -> None:
    job = await running(store)
    odd = "val/loss 2 ü"
    assert await report(store, job, points=(*points("loss", range(3)), *points(odd, range(1))))
    assert await report(store, job, points=points("loss", range(3, 5)))
    store = await reopen()
    loss, other = await store.metrics(job.id)
    assert (loss.name, other.name) == ("loss", odd)
    assert loss.points == tuple(
        SeriesPoint(1, step, NOON + timedelta(seconds=step), step / 7) for step in range(5)
    )
    assert await store.metrics(job.id + 1) == []
    assert await store.metric_names(job.id) == ["loss", odd]
    assert await store.metric_names(job.id + 1) == []
    assert await store.metrics(job.id, [odd, "unknown", "loss' --"]) == [other]
    assert await store.metrics(job.id, []) == []


async def test_nan_and_infinity_are_read_back(store: Store, reopen: Reopen) -> None:
    job = await running(store)
    values = (math.nan, math.inf, -math.inf, 1e300, -1e300)
    bad = Nonfinite("loss", math.nan, 0, NOON, rank=0)
    await report(
        store,
        job,
        progress=Progress(step=4, metrics={"loss": math.nan, "top": math.inf}, nonfinite=(bad,)),
        points=[MetricPoint("loss", step, NOON, value) for step, value in enumerate(values)],
    )
    store = await reopen()
    [series] = await store.metrics(job.id)
    assert [repr(point.value) for point in series.points] == [repr(value) for value in values]
    progress = (await store.get(job.id)).progress
    assert progress is not None
    assert repr(progress.metrics) == "{'loss': nan, 'top': inf}"
    [read] = progress.nonfinite
    assert replace(read, value=0.0) == replace(bad, value=0.0)
    assert math.isnan(read.value)


async def test_a_long_series_is_thinned_evenly_and_never_exceeds_its_limit(store: Store) -> None:
    job = await running(store)
    total = 5 * MAX_POINTS
    for start in range(0, total, 512):
        await report(store, job, points=points("loss", range(start, start + 512)))
        [series] = await store.metrics(job.id)
        assert len(series.points) <= MAX_POINTS
    steps = [point.step for point in series.points]
    assert steps == list(range(0, total, 8))


async def test_the_series_and_artifacts_of_a_job_are_limited(store: Store) -> None:
    job = await running(store)
    names = [f"m{number:04}" for number in range(MAX_SERIES + 50)]
    await report(store, job, points=tuple(MetricPoint(name, 1, NOON, 1.0) for name in names))
    await report(store, job, points=points(names[0], range(2, 4)))
    series = await store.metrics(job.id)
    assert [one.name for one in series] == names[:MAX_SERIES]
    assert len(series[0].points) == 3
    made = tuple(Artifact(name=name, uri="u") for name in names[: MAX_ARTIFACTS + 9])
    await report(store, job, artifacts=made)
    assert [one.name for one in await store.artifacts(job.id)] == names[:MAX_ARTIFACTS]


async def test_an_artifact_replaces_one_of_the_same_name(store: Store, reopen: Reopen) -> None:
    job = await running(store)
    first = Artifact(name="model", uri="old", at=NOON)
    last = Artifact(name="model", uri="new", kind="model", size=2**40, sha256="ab" * 32, at=NOON)
    other = Artifact(name="log", uri="x", at=NOON)
    await report(store, job, artifacts=(first, other))
    await report(store, job, artifacts=(last,))
    found = await (await reopen()).artifacts(job.id)
    assert [(one.name, one.uri, one.attempt) for one in found] == [("log", "x", 1), ("model", "new", 1)]
    assert found[1].size == 2**40


async def test_each_report_of_a_batch_is_accepted_or_refused_separately(store: Store) -> None:
    jobs = [await running(store) for _ in range(3)]
    ended = NOON - timedelta(seconds=9)
    await store.update(jobs[1].ended(Ending(JobState.FAILED, ended), ended))
    reports = [
        AttemptReport(job_id=job.id, attempt=attempt, at=NOON, progress=Progress(step=5))
        for job, attempt in [(jobs[0], 1), (jobs[1], 1), (jobs[2], 2), (jobs[2], 1)]
    ]
    assert await store.record_reports(reports) == [True, False, False, True]
    assert await store.record_reports([]) == []
    assert [(await store.get(job.id)).progress for job in jobs] == [Progress(step=5), None, Progress(step=5)]


async def test_reports_are_deleted_with_their_job(store: Store) -> None:
    job, other = await running(store), await running(store)
    for one in (job, other):
        await report(store, one, points=points("loss", range(3)), artifacts=(Artifact(name="m", uri="u"),))
    await store.update(job.ended(Ending(JobState.FAILED, NOON), NOON))
    await store.delete([job.id])
    assert (await store.metrics(job.id), await store.artifacts(job.id)) == ([], [])
    assert (len(await store.metrics(other.id)), len(await store.artifacts(other.id))) == (1, 1)


async def test_the_id_of_a_store_does_not_change(store: Store, reopen: Reopen) -> None:
    store_id = await store.store_id()
    assert re.fullmatch("[0-9a-f]{8}", store_id)
    assert store_id == await store.store_id() == await (await reopen()).store_id()

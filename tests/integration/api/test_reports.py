"""Reports over the API: their tokens, checks and effects."""

import asyncio
import json
import math
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToJson
from google.protobuf.timestamp_pb2 import Timestamp

from job_tracker.backends.fake import FakeBackend
from job_tracker.logs.records import time_of
from job_tracker.reports.follower import LogFollower
from tests.support.api_service import Service, metadata
from training_service._generated import training_reporter_pb2 as reporter_pb
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_reporter_pb2_grpc import TrainingReporterStub

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
MILLISECOND = timedelta(milliseconds=1)
OVER = grpc.StatusCode.FAILED_PRECONDITION


async def running(service: Service) -> int:
    job_id = await service.train({"RUN_SECONDS": "forever"})
    await service.seen(job_id, pb.running)
    return job_id


async def send(
    service: Service, request: reporter_pb.ReportRequest, *, token: str | None
) -> reporter_pb.ReportResponse:
    sent = () if token is None else (("authorization", f"Bearer {token}"),)
    return await TrainingReporterStub(service.channel).Report(request, metadata=sent)


def values(**metrics: float) -> list[reporter_pb.MetricValue]:
    return [reporter_pb.MetricValue(name=name, value=value, step=7) for name, value in metrics.items()]


async def series_of(service: Service, job_id: int, *names: str) -> dict[str, list[Any]]:
    request = pb.GetTrainingMetricsRequest(job_id=job_id, names=names)
    found = service.stub.GetTrainingMetrics(request)
    return {one.name: [(p.step, p.value, p.attempt) for p in one.points] async for one in found}


async def test_a_report_is_shown_in_the_status_and_kept_as_series(service: Service) -> None:
    job_id = await running(service)
    token = service.tokens.issue(job_id, 1)
    request = reporter_pb.ReportRequest(step=7, total_steps=70, metrics=values(loss=0.5, accuracy=0.25))
    answer = await send(service, request, token=token)
    assert (list(answer.problems), answer.pause.seconds) == ([], 1)
    assert not answer.HasField("quiet_pause")
    async for status in service.stub.WatchTraining(pb.WatchTrainingRequest(job_id=job_id)):
        if status.progress.step == 7:
            break
    assert status.progress.metrics == {"loss": 0.5, "accuracy": 0.25}
    assert await series_of(service, job_id) == {"accuracy": [(7, 0.25, 1)], "loss": [(7, 0.5, 1)]}
    assert await series_of(service, job_id, "loss", "nope") == {"loss": [(7, 0.5, 1)]}


async def test_nan_is_shown_and_fails_the_attempt_only_if_the_request_says_so(service: Service) -> None:
    flagged = await running(service)
    request = reporter_pb.ReportRequest(step=7, metrics=values(loss=math.nan, grad_norm=math.inf))
    for _ in range(2):  # a repeated report changes nothing
        answer = await send(service, request, token=service.tokens.issue(flagged, 1))
        assert not answer.problems
    async for status in service.stub.WatchTraining(pb.WatchTrainingRequest(job_id=flagged)):
        if status.progress.step == 7:
            break
    assert math.isnan(status.progress.metrics["loss"])
    assert [(bad.metric, bad.step) for bad in status.progress.nonfinite] == [("loss", 7), ("grad_norm", 7)]
    assert status.status == pb.running
    text = json.loads(MessageToJson(status), parse_constant=pytest.fail)  # strict JSON has no NaN
    assert text["progress"]["metrics"]["loss"] == "NaN"

    wanted = pb.TrainRequest(
        metadata=metadata({"RUN_SECONDS": "forever"}), number_policy=pb.NumberPolicy(on_nonfinite="fail")
    )
    failing = (await service.stub.Train(wanted)).job_id
    await service.seen(failing, pb.running)
    request.rank.rank = 0
    await send(service, request, token=service.tokens.issue(failing, 1))
    failed = await service.seen(failing, pb.failure)
    assert failed.diagnosis.category == "diverged"
    assert failed.message.startswith(
        "The training diverged: 'loss' is NaN at step 7 on rank 0. Lower the learning rate"
    )
    again = await service.stub.GetTrainingArtifacts(pb.GetTrainingArtifactsRequest(job_id=failing))
    assert again.provenance.request.number_policy == pb.NumberPolicy(on_nonfinite="fail", metrics=["*loss*"])


async def test_a_job_that_reports_nan_and_succeeds_at_once_has_diverged_too(service: Service) -> None:
    wanted = pb.TrainRequest(
        metadata=metadata({"RUN_SECONDS": "forever"}),
        number_policy=pb.NumberPolicy(on_nonfinite="fail", metrics=["mae"]),
    )
    job_id = (await service.stub.Train(wanted)).job_id
    await service.seen(job_id, pb.running)
    token = service.tokens.issue(job_id, 1)
    await send(service, reporter_pb.ReportRequest(step=7, metrics=values(mae=-math.inf)), token=token)
    service.world.end_rank((await service.store.get(job_id)).group, 0, 0)  # before the report is written
    failed = await service.seen(job_id, pb.failure)
    assert failed.diagnosis.summary == "The training diverged: 'mae' is -infinity at step 7."


@pytest.mark.parametrize("token", [None, "", "rubbish", "1.1." + "x" * 43])
async def test_a_report_without_a_token_is_refused(service: Service, token: str | None) -> None:
    await running(service)
    await service.refuses(send(service, reporter_pb.ReportRequest(step=7), token=token), UNAUTHENTICATED)


async def test_a_token_is_valid_only_for_its_attempt(service: Service) -> None:
    mine, other = await running(service), await running(service)
    await send(service, reporter_pb.ReportRequest(step=7), token=service.tokens.issue(mine, 1))
    _, _, mac = service.tokens.issue(mine, 1).split(".")
    request = reporter_pb.ReportRequest(step=9)
    await service.refuses(send(service, request, token=f"{other}.1.{mac}"), UNAUTHENTICATED)
    for job_id, attempt in ((mine, 2), (99, 1)):
        await service.refuses(send(service, request, token=service.tokens.issue(job_id, attempt)), OVER)
    assert (await service.status(other)).progress.step == 0


async def test_a_report_of_an_ended_attempt_is_refused(service: Service) -> None:
    job_id = await running(service)
    await service.stub.CancelTraining(pb.CancelTrainingRequest(job_id=job_id))
    await service.seen(job_id, pb.cancelled)
    request = reporter_pb.ReportRequest(step=9)
    details = await service.refuses(send(service, request, token=service.tokens.issue(job_id, 1)), OVER)
    assert details == f"attempt 1 of job {job_id} is no longer running; its reports are not kept"


async def test_invalid_values_are_dropped_and_named(service: Service) -> None:
    job_id = await running(service)
    request = reporter_pb.ReportRequest(
        step=-1,
        metrics=[
            *values(large=1e301, small=-1e301, good=1.0),
            reporter_pb.MetricValue(name="", value=1),
            reporter_pb.MetricValue(name="x" * 500, value=1),
            reporter_pb.MetricValue(name="when", value=2, at=Timestamp(seconds=2**60)),
            reporter_pb.MetricValue(name="early", value=2, step=-5),
        ],
        artifacts=[reporter_pb.ReportedArtifact(name="../x", uri="y")],
    )
    answer = await send(service, request, token=service.tokens.issue(job_id, 1))
    assert len(answer.problems) == 7
    assert all(problem.isprintable() for problem in answer.problems)
    await service.reports.write()
    assert sorted(await series_of(service, job_id)) == ["good", "when"]


async def test_the_number_of_names_is_bounded(service: Service) -> None:
    job_id = await running(service)
    token = service.tokens.issue(job_id, 1)
    many = reporter_pb.ReportRequest(metrics=values(**{f"m{n}": 1.0 for n in range(20_000)}))
    await service.refuses(send(service, many, token=token), grpc.StatusCode.INVALID_ARGUMENT)
    for start in range(0, 4000, 1000):
        names = {f"m{n}": 1.0 for n in range(start, start + 1000)}
        await send(service, reporter_pb.ReportRequest(metrics=values(**names)), token=token)
    await service.reports.write()
    assert len(await series_of(service, job_id)) == 256
    assert len((await service.status(job_id)).progress.metrics) == 64


async def test_lines_and_calls_have_the_same_effect(service: Service) -> None:
    line = '::progress:: {"step": 3, "metrics": {"loss": 0.75}}'
    job_id = await service.train({"RUN_SECONDS": "forever", "PRINT": line})
    async for status in service.stub.WatchTraining(pb.WatchTrainingRequest(job_id=job_id)):
        if status.progress.step == 3:
            break
    assert await series_of(service, job_id) == {"loss": [(3, 0.75, 1)]}


async def test_the_speed_is_shown_only_while_the_job_runs(service: Service) -> None:
    job_id = await running(service)
    group = (await service.store.get(job_id)).group
    lines = [f'::progress:: {{"step": {36 * n}, "total_steps": 360}}' for n in range(6)]
    start = datetime.now(UTC) - timedelta(seconds=6)
    service.world.live[group].printed[0] = b"".join(
        b"%b F %b\n" % (time_of(start + timedelta(seconds=n)), line.encode()) for n, line in enumerate(lines)
    )
    await service.reports.write()
    follower = LogFollower(service.reports, FakeBackend(service.world))
    follower.follow(await service.store.get(job_id))
    while (shown := (await service.status(job_id)).progress).step < 180:
        await service.reports.write()
    assert shown.steps_per_second == pytest.approx(36, rel=0.01)
    assert shown.seconds_left == pytest.approx(5, rel=0.01)
    assert shown.reported_at.ToDatetime(UTC) == pytest.approx(start + timedelta(seconds=5), abs=MILLISECOND)
    service.world.end_rank(group, 0, 0)
    ended = (await service.seen(job_id, pb.succeed)).progress
    assert (ended.step, ended.steps_per_second, ended.HasField("seconds_left")) == (180, 0, False)
    await follower.close()


async def test_an_unknown_job_has_no_metrics_or_artifacts(service: Service) -> None:
    request = pb.GetTrainingMetricsRequest(job_id=99)
    await service.refuses(anext(aiter(service.stub.GetTrainingMetrics(request))), grpc.StatusCode.NOT_FOUND)
    made = service.stub.GetTrainingArtifacts(pb.GetTrainingArtifactsRequest(job_id=99))
    await service.refuses(made, grpc.StatusCode.NOT_FOUND)


async def test_artifacts_are_the_files_of_the_model_and_the_reported_ones(
    service: Service, tmp_path: Path
) -> None:
    job_id = await running(service)
    token = service.tokens.issue(job_id, 1)
    folder = Path((await service.status(job_id)).model_uri)
    (folder / "sub").mkdir(parents=True)
    (folder / "model.pt").write_bytes(b"m" * 700_000)
    (folder / "sub" / "labels.json").write_text("[]")
    reported = [
        reporter_pb.ReportedArtifact(
            name="model.pt", uri="reported", kind="model", size=700_000, sha256="ab" * 32
        ),
        reporter_pb.ReportedArtifact(name="curve", uri="s3://elsewhere/curve.png"),
    ]
    await send(service, reporter_pb.ReportRequest(artifacts=reported), token=token)
    await service.reports.write()
    answer = await service.stub.GetTrainingArtifacts(pb.GetTrainingArtifactsRequest(job_id=job_id))
    found = {made.name: (made.kind, made.size, made.fetchable) for made in answer.artifacts}
    assert found == {
        "curve": ("", 0, False),
        "model.pt": ("model", 700_000, True),
        "sub/labels.json": ("", 2, True),
    }
    provenance = answer.provenance
    assert provenance.request.metadata.parameters["EPOCHS"] == "15"
    assert provenance.request.retry_policy.max_attempts == 3
    assert provenance.data_uri.endswith("/versionedDatasets/1/v1")

    async def fetch(name: str) -> bytes:
        request = pb.FetchTrainingArtifactRequest(job_id=job_id, name=name)
        return b"".join([piece.content async for piece in service.stub.FetchTrainingArtifact(request)])

    assert await fetch("model.pt") == b"m" * 700_000
    assert await fetch("sub/labels.json") == b"[]"
    (tmp_path / "secret").write_text("secret")
    for name in ("../../secret", "/etc/passwd", "", "sub/../../x", "a\x00b"):
        await service.refuses(fetch(name), grpc.StatusCode.INVALID_ARGUMENT)
    for name in ("curve", "nope", "sub"):
        await service.refuses(fetch(name), grpc.StatusCode.NOT_FOUND)


async def test_many_concurrent_reports_are_accepted(service: Service) -> None:
    job_id = await running(service)
    token = service.tokens.issue(job_id, 1)
    requests = [
        reporter_pb.ReportRequest(step=n, metrics=[reporter_pb.MetricValue(name="loss", value=n, step=n)])
        for n in range(300)
    ]
    await asyncio.gather(*(send(service, request, token=token) for request in requests))
    await service.reports.write()
    assert len((await series_of(service, job_id))["loss"]) == 300


def standing(rank: int, step: int, **values: Any) -> reporter_pb.ReportRequest:
    """A report of the position of a process, and nothing else."""
    return reporter_pb.ReportRequest(
        rank=reporter_pb.RankProgress(rank=rank, step=step, longest_step=0.01, step_seconds=0.01, **values)
    )


async def test_the_rank_that_does_not_arrive_ends_the_attempt_with_its_stack(service: Service) -> None:
    metadata_of = {"RUN_SECONDS": "forever", "PARALLEL_INSTANCES": "2"}
    request = pb.TrainRequest(metadata=metadata(metadata_of))
    request.deadlines.progress.FromTimedelta(timedelta(seconds=0.2))
    request.retry_policy.max_attempts = 1
    job_id = (await service.stub.Train(request)).job_id
    await service.seen(job_id, pb.running)
    token = service.tokens.issue(job_id, 1)
    stacks = "Thread MainThread:\n  train.py:7 in read\n"

    async def report(rank: int, **values: Any) -> reporter_pb.ReportResponse:
        return await send(service, standing(rank, 5 + rank, waiting=rank == 1, **values), token=token)

    async def go_on(rank: int) -> None:
        """Report until the attempt has ended, and send the stacks as often as they are asked for."""
        while True:
            if (await report(rank)).wants_stacks:
                await report(rank, stacks=stacks)
            await asyncio.sleep(0.05)

    for rank in (0, 1):  # before one answers, so that no stall is decided without the other
        await report(rank)
    for error in await asyncio.gather(go_on(0), go_on(1), return_exceptions=True):
        assert isinstance(error, grpc.aio.AioRpcError)
        assert error.code() is OVER
    ended = await service.seen(job_id, pb.failure)
    assert (ended.diagnosis.category, ended.diagnosis.rank, ended.diagnosis.retryable) == ("stalled", 0, True)
    assert "It stands at train.py:7 in read." in ended.diagnosis.summary
    assert ended.diagnosis.detail.startswith("Rank 0: \ntrain.py:7 in read")


async def test_the_status_shows_where_each_rank_stands(service: Service) -> None:
    request = pb.TrainRequest(metadata=metadata({"RUN_SECONDS": "forever", "PARALLEL_INSTANCES": "2"}))
    job_id = (await service.stub.Train(request)).job_id
    await service.seen(job_id, pb.running)
    token = service.tokens.issue(job_id, 1)
    for rank in (0, 1, 2, -1):  # the group has only the first two
        answer = await send(service, standing(rank, 5, phase="saving"), token=token)
        assert (answer.pause.seconds, answer.quiet_pause.seconds) == (1, 15)
    async for status in service.stub.WatchTraining(pb.WatchTrainingRequest(job_id=job_id)):
        if status.ranks and status.ranks[1].HasField("pace"):
            break
        await send(service, standing(1, 5, phase="saving"), token=token)
    assert [(rank.pace.step, rank.pace.phase) for rank in status.ranks] == [(5, "saving")] * 2
    assert not status.progress.HasField("reported_at")  # the attempt itself has reported nothing


async def test_a_held_job_may_stand_still_until_it_is_released(service: Service) -> None:
    request = pb.TrainRequest(metadata=metadata({"RUN_SECONDS": "forever"}), tags=["held"])
    request.deadlines.progress.FromTimedelta(timedelta(seconds=0.2))
    request.retry_policy.max_attempts = 1
    job_id = (await service.stub.Train(request)).job_id
    await service.seen(job_id, pb.running)
    token = service.tokens.issue(job_id, 1)

    asked = 0

    async def report() -> None:
        nonlocal asked
        answer = await send(service, standing(0, 5), token=token)
        if answer.wants_stacks:
            await send(service, standing(0, 5, stacks="Thread MainThread:\n"), token=token)
            asked += 1
        await asyncio.sleep(0.05)

    while asked < 2:  # the hold has restarted the deadline of the job
        await report()
    assert (await service.status(job_id)).status == pb.running
    await service.stub.AnnotateTraining(pb.AnnotateTrainingRequest(job_id=job_id, remove_tags=["held"]))
    while (status := await service.status(job_id)).status == pb.running and not status.ending:
        with suppress(grpc.aio.AioRpcError):  # the attempt may just have ended
            await report()
    assert (await service.seen(job_id, pb.failure)).diagnosis.category == "stalled"

"""trainctl queue."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from google.protobuf.timestamp_pb2 import Timestamp

from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl


def waiting(job_id: int, **more: object) -> pb.WaitingJob:
    values: dict[str, object] = {
        "name": f"job-{job_id}",
        "project": "vision",
        "queue": "research",
        "place": job_id,
        "priority": 100,
        "instances": 4,
        "reason": pb.WaitingReason(code="capacity", message="Other jobs use what it needs."),
        "estimate": pb.StartEstimate(
            median=Timestamp(seconds=60), high=Timestamp(seconds=120), basis="learned"
        ),
    }
    return pb.WaitingJob(job_id=job_id, **{**values, **more})  # type: ignore[arg-type]


def fill(training: ServerInThread, *jobs: pb.WaitingJob) -> None:
    queue = pb.QueueStanding(
        name="research",
        weight=3,
        waiting=len(jobs),
        running=2,
        instances=6,
        share=0.75,
        max_running=5,
        used=[
            pb.UsedResource(flavor="a100", resource="instances", used="6", capacity="16", nominal="8"),
            pb.UsedResource(flavor="a100", resource="nvidia.com/gpu", used="48", capacity="128"),
        ],
    )
    training.service.queue_page = pb.GetQueueResponse(jobs=jobs, queues=[queue])


def test_each_waiting_job_is_a_line_in_a_pipe(training: ServerInThread, trainctl: Trainctl) -> None:
    never = waiting(8, reason=pb.WaitingReason(code="lost_capacity"))
    never.ClearField("estimate")
    fill(training, waiting(7), never)
    start, latest = "1970-01-01T00:01:00Z", "1970-01-01T00:02:00Z"
    assert trainctl("queue").stdout.splitlines() == [
        f"7\t7\tresearch\tvision\t100\t4\tcapacity\t{start}\t{latest}\tlearned\tjob-7",
        "8\t8\tresearch\tvision\t100\t4\tlost_capacity\t-\t-\t-\tjob-8",
    ]
    assert trainctl("--quiet", "queue").stdout == "7\n8\n"


def test_a_terminal_shows_queues_and_jobs(training: ServerInThread, trainctl: Trainctl) -> None:
    fill(training, waiting(7))
    shown = trainctl.on_terminal("queue").stdout
    for text in (
        "a100/instances=6/8 (of 16)",
        "2/5",
        "75%",
        "capacity",
        "* rests on run times",
        "AT THE LATEST",
    ):
        assert text in shown
    fill(training)
    assert "No jobs wait." in trainctl.on_terminal("queue").stdout


def test_json_has_queues_and_jobs_as_the_api_does(training: ServerInThread, trainctl: Trainctl) -> None:
    fill(training, waiting(7))
    found = json.loads(trainctl("queue", "--json").stdout)
    assert found["queues"][0]["used"][0]["nominal"] == "8"
    assert found["jobs"][0]["reason"]["code"] == "capacity"


def test_the_limit_bounds_the_jobs_over_all_pages(training: ServerInThread, trainctl: Trainctl) -> None:
    fill(training, *(waiting(number) for number in range(1, 1203)))
    assert len(trainctl("queue", "--limit", "1101").stdout.splitlines()) == 1101
    found = trainctl("queue", "--limit", "2")
    assert found.stdout.count("\n") == 2
    assert "more jobs wait; --limit 4 shows more" in found.stderr


def test_the_project_and_the_queue_are_sent(training: ServerInThread, trainctl: Trainctl) -> None:
    fill(training, waiting(7), waiting(8, queue="other"))
    assert trainctl("--project", "vision", "--quiet", "queue", "--queue", "other").stdout == "8\n"
    request = training.service.requests[-1]
    assert (request.project, request.queue) == ("vision", "other")

"""trainctl why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.support.trainctl import DIAGNOSIS
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl


def test_why_prints_the_reasons_the_promise_and_the_holders(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    training.set_job(1, status=pb.queuing)
    training.service.explanations[1] = pb.ExplainTrainingResponse(
        job_id=1,
        queue="research",
        position=2,
        wanted_flavor="a100",
        reasons=[
            pb.WaitingReason(code="quota", message="Its queue is at its quota."),
            pb.WaitingReason(code="order", message="Jobs before it wait, too."),
        ],
        promised_start=Timestamp(seconds=60),
        flavor="a100",
        moved_because="A job runs longer.",
        holders=[pb.CapacityHolder(job_id=7, name="other", project="vision", instances=4)],
        other_holders=2,
        other_instances=3,
        estimate=pb.StartEstimate(median=Timestamp(seconds=60), high=Timestamp(seconds=120), basis="learned"),
        remedies=[pb.Remedy(code="instances", message="Ask for 2.", is_verified=True)],
        expected_run=pb.ExpectedRun(median_seconds=60, high_seconds=3600, source="given"),
    )
    assert trainctl("why", "1").stdout.splitlines() == [
        "job: 1",
        "queue: research, 2 jobs before it",
        "flavor: a100, as it asks",
        "reason: quota: Its queue is at its quota.",
        "reason: order: Jobs before it wait, too.",
        "promised: 1970-01-01T00:01:00Z on a100",
        "start: about 1970-01-01T00:01:00Z, in nine of ten cases before 1970-01-01T00:02:00Z "
        "(by run times of earlier attempts)",
        "moved: A job runs longer.",
        "runs: for 1m 00s, in nine of ten cases less than 1h 00m (as its caller said)",
        "remedy: Ask for 2.",
        "held by: job 7 other (project vision, 4 instances)",
        "held by: 2 other jobs (3 instances)",
    ]
    assert trainctl("--quiet", "why", "1").stdout == "quota\norder\n"
    assert "Its queue is at its quota." in trainctl.on_terminal("why", "1").stdout


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (pb.GetTrainingStatusResponse(status=pb.succeed), "ended: succeeded; see trainctl status 1"),
        (pb.GetTrainingStatusResponse(status=pb.cancelled), "ended: cancelled; see trainctl status 1"),
        (
            pb.GetTrainingStatusResponse(status=pb.failure, diagnosis=DIAGNOSIS),
            "ended: failed: It ran out of memory; see trainctl status 1",
        ),
        (
            pb.GetTrainingStatusResponse(status=pb.failure, message="No\nidea"),
            "ended: failed: No\\nidea; see trainctl status 1",
        ),
        (pb.GetTrainingStatusResponse(status=pb.running), "waits: no: it runs"),
        (pb.GetTrainingStatusResponse(status=pb.launch), "waits: no: it is being launched"),
        (
            pb.GetTrainingStatusResponse(
                attempt=1, next_attempt_at=Timestamp(seconds=60), message="Attempt 1 of 3 failed."
            ),
            "waits: for its next attempt. Attempt 1 of 3 failed.",
        ),
        (pb.GetTrainingStatusResponse(), "waits: no: it is not in the queue"),
    ],
)
def test_why_of_a_job_that_is_not_in_the_queue_says_how_it_is_instead(
    training: ServerInThread, trainctl: Trainctl, status: pb.GetTrainingStatusResponse, said: str
) -> None:
    training.set_job(1)
    training.service.jobs[1].MergeFrom(status)
    assert trainctl("why", "1").stdout.replace(f" -a {training.address}", "") == f"job: 1\n{said}\n"
    assert (trainctl("--quiet", "why", "1").stdout, trainctl("why", "1", "--json").exit_code) == ("", 0)


def test_why_says_of_a_running_job_for_what_it_is_being_stopped(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    training.set_job(1, status=pb.running)
    training.service.explanations[1] = pb.ExplainTrainingResponse(
        job_id=1, stopped="Made larger: more instances are free."
    )
    said = "job: 1\nwaits: no: it is being stopped. Made larger: more instances are free.\n"
    assert trainctl("why", "1").stdout == said


def test_why_names_no_time_of_zero_seconds_and_none_without_room(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    training.set_job(1, status=pb.queuing)
    training.service.explanations[1] = pb.ExplainTrainingResponse(
        job_id=1,
        queue="default",
        reasons=[pb.WaitingReason(code="room", message="No room.")],
        expected_run=pb.ExpectedRun(median_seconds=0.2, high_seconds=0.4, source="learned"),
    )
    said = trainctl("why", "1").stdout.splitlines()
    assert "runs: for less than 1s, in nine of ten cases less than 1s (as earlier attempts)" in said
    assert "start: as soon as the machine of the service has room" in said


def test_why_of_a_job_that_waits_in_the_clusters_own_queue_says_what_that_says(
    training: ServerInThread, trainctl: Trainctl
) -> None:
    training.set_job(1, status=pb.launch)
    training.service.explanations[1] = pb.ExplainTrainingResponse(
        job_id=1,
        queue="vision",
        reasons=[pb.WaitingReason(code="delegated", message="Waits for Kueue: no quota")],
        remedies=[pb.Remedy(code="wait", message="Wait.")],
    )
    assert trainctl("why", "1").stdout.splitlines() == [
        "job: 1",
        "queue: vision, 0 jobs before it",
        "reason: delegated: Waits for Kueue: no quota",
    ]

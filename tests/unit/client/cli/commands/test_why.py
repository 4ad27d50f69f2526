"""trainctl why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.timestamp_pb2 import Timestamp

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


def test_why_says_that_a_job_does_not_wait(training: ServerInThread, trainctl: Trainctl) -> None:
    training.set_job(1, status=pb.succeed)
    assert trainctl("why", "1").stdout == "job: 1\nwaits: no: it is not in the queue\n"


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

"""Facts that follow from several values of a status."""

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.support.statuses import NOW, Status, before_now, drawn
from training_service._generated import training_service_pb2 as pb
from training_service.client.cli.render import facts, lines, panels


def running(
    reported: Timestamp | None = None, heard: Timestamp | None = None, *, ending: bool = False
) -> Status:
    return Status(
        job_id=1,
        status=pb.running,
        started_at=before_now(hours=3),
        progress=pb.Progress(step=4, reported_at=reported),
        ranks=[pb.RankStatus(role="master"), pb.RankStatus(role="worker", pace=pb.RankPace(heard_at=heard))],
        ending=ending,
    )


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (running(), "no progress reported for 3h 00m"),
        (running(before_now(minutes=12)), "no progress reported for 12m 00s"),
        (running(before_now(minutes=12), before_now(minutes=11)), "no progress reported for 11m 00s"),
        (running(before_now(minutes=9)), ""),
        (running(before_now(minutes=12), before_now(seconds=9)), ""),  # a call of a rank is a sign, too
        (running(before_now(minutes=-9)), ""),  # the clock of this machine is late
        (running(ending=True), ""),
        (Status(status=pb.running), ""),
        (Status(status=pb.succeed, started_at=before_now(hours=3)), ""),
    ],
)
def test_a_running_job_is_silent_if_nothing_was_reported_for_long(status: Status, said: str) -> None:
    assert facts.silence(status, NOW) == said


def test_a_silent_job_is_shown_as_such() -> None:
    silent = running(before_now(minutes=12))
    assert "\nsilent: no progress reported for 12m 00s\n" in lines.situation(silent, NOW)
    assert "no progress reported for 12m 00s" in drawn(panels.situation(silent, NOW))
    assert "step 4, no progress reported for 12m 00s" in drawn(panels.jobs_table([silent], NOW), 250)


def test_a_description_shows_the_program_and_where_its_packages_come_from() -> None:
    program = pb.Program(
        tree="0f" * 32, command=["python", "a b.py"], version="f00", requirements="r.txt", image="team:1"
    )
    text = lines.description(Status(job_id=1, program=program))
    assert "\ncommand: python 'a b.py'\n" in text
    assert "\npackages: those of r.txt\n" in text
    assert "\nimage: team:1\n" in text
    assert "\ncode version: f00\n" in text
    program.ClearField("image")
    program.python_environment = "vision"
    assert "\npython environment: vision\n" in lines.description(Status(job_id=1, program=program))
    assert "command" not in lines.description(Status(job_id=1))


def test_the_history_says_why_an_attempt_was_stopped_before_its_end() -> None:
    moves = [
        pb.Move(status=pb.queuing),
        pb.Move(status=pb.queuing, attempt=1, preempted="Preempted: job 9 has a higher priority."),
        pb.Move(status=pb.queuing, attempt=1, evicted="Evicted: n7 is being shut down."),
        pb.Move(status=pb.queuing, attempt=2),
    ]
    assert [change for _, change in facts.history(Status(moves=moves))] == [
        "submitted",
        "queued again: Preempted: job 9 has a higher priority.",
        "queued again: Evicted: n7 is being shut down.",
        "queued again",
    ]


def test_a_waiting_job_says_why_it_waits() -> None:
    before = "Queueing, there are 2 training jobs waiting before this."
    status = Status(job_id=1, positionInQueue=2, message=f"{before} Other jobs use what it needs.")
    found = dict(facts.situation(status, NOW))
    assert (found["Queue"], found["Waits"]) == ("2 jobs ahead", "Other jobs use what it needs.")
    assert "Waits" not in dict(facts.situation(Status(job_id=1, message=before), NOW))


def test_the_attempt_after_a_failure_says_why_the_last_one_failed() -> None:
    why = pb.Diagnosis(summary="Rank 0 exited with code 1.", cause='train.py:3: ValueError: "x"')
    moves = [
        pb.Move(status=pb.queuing),
        pb.Move(status=pb.queuing, attempt=1, diagnosis=pb.Diagnosis(summary="No quota.")),
        pb.Move(status=pb.queuing, attempt=2, diagnosis=why),
        pb.Move(status=pb.running, attempt=3, diagnosis=pb.Diagnosis(summary="Rank 1 was restarted.")),
    ]
    said = 'attempt 2: Rank 0 exited with code 1. Cause: train.py:3: ValueError: "x"'
    again = Status(job_id=1, status=pb.running, attempt=3, max_attempts=4, moves=moves)
    assert f"\nattempt: 3 of 4\nlast failure: {said}\n" in lines.situation(again, NOW) + "\n"
    assert said in drawn(panels.live(again, NOW), 250)
    again.status = pb.launch
    assert lines.update(again) == f"job 1: launch, attempt 3, last failure: {said}"
    again.status = pb.succeed
    assert "last failure" not in lines.situation(again, NOW)
    again.next_attempt_at.CopyFrom(before_now(seconds=-20))
    again.status, again.message = pb.queuing, f"Attempt 2 of 4 failed. {why.summary}"
    assert lines.situation(again, NOW).count(why.summary) == 1


@pytest.mark.parametrize(
    ("speed", "reported", "done", "pace"),
    [
        (2.0, {"minutes": 6}, "step 20/1600 (last report 6m 00s ago)", "2 steps/s"),
        (2.0, {"seconds": 29}, "step 20/1600", "2 steps/s, 17m 15s left"),
        (0.01, {"minutes": 4}, "step 20/1600", "0.01 steps/s, 17m 15s left"),  # steps of 100 s
        (0.01, {"minutes": 6}, "step 20/1600 (last report 6m 00s ago)", "0.01 steps/s"),
    ],
)
def test_after_a_late_report_its_age_is_shown_and_no_time_left(
    speed: float, reported: dict[str, float], done: str, pace: str
) -> None:
    status = Status(job_id=1, status=pb.running)
    status.progress.MergeFrom(
        pb.Progress(step=20, total_steps=1600, steps_per_second=speed, seconds_left=1035)
    )
    status.progress.reported_at.CopyFrom(before_now(**reported))
    found = dict(facts.situation(status, NOW))
    assert (found["Progress"], found["Pace"]) == (done, pace)
    status.status = pb.succeed
    assert dict(facts.situation(status, NOW))["Progress"] == "step 20/1600"

"""Statuses as lines for pipes."""

from __future__ import annotations

from tests.support.statuses import (
    FAILED,
    HOSTILE,
    NOW,
    RUNNING,
    TAMED,
    Status,
    before_now,
    drawn,
    metadata,
)
from training_service._generated import training_service_pb2 as pb
from training_service.client.cli.render import lines, panels


def test_a_row_has_tab_separated_fields_despite_hostile_names() -> None:
    status = Status(
        job_id=7,
        status=pb.queuing,
        metadata=metadata(name=HOSTILE),
        instances=3,
        submitted_at=before_now(),
        project="vision",
        submitted_by=HOSTILE,
        tags=["best", "team=a"],
    )
    row = ["7", "queuing", "bert", TAMED, "3", "2025-11-21T12:00:00Z", "vision", TAMED, "best,team=a"]
    assert lines.row(status).split("\t") == row


def test_a_description_in_a_pipe_has_labelled_lines() -> None:
    assert lines.description(RUNNING).splitlines() == [
        "job: 3",
        "status: running",
        "algorithm: bert",
        "name: nightly",
        "dataset: questions version 3f2a",
        "parameters: EPOCHS=5 LR=0.1",
        "instances: 2",
        "submitted: 2025-11-21T11:56:00Z",
        "started: 2025-11-21T11:57:55Z",
        "history: ",
    ]


def test_a_situation_in_a_pipe_has_labelled_lines() -> None:
    assert lines.situation(RUNNING, NOW).splitlines() == [
        "job: 3",
        "status: running",
        "algorithm: bert",
        "name: nightly",
        "attempt: 2",
        "progress: step 45/100, epoch 2/5",
        "metrics: accuracy 0.88, loss 0.3125",
        "ranks: master running, worker 1 failed (exit code 137)",
        "submitted: 2025-11-21T11:56:00Z",
        "started: 2025-11-21T11:57:55Z",
    ]


def test_no_sentence_is_said_twice() -> None:
    summary, advice = FAILED.diagnosis.summary, FAILED.diagnosis.resolution
    failed = Status(moves=[pb.Move(status=pb.failure, attempt=1, diagnosis=FAILED.diagnosis)])
    failed.MergeFrom(FAILED)
    failed.message = f"{summary} {advice}"
    for said in (summary, advice):
        assert (
            lines.situation(failed, NOW).count(said) == drawn(panels.situation(failed, NOW)).count(said) == 1
        )
    assert (
        lines.description(failed).count(summary) == drawn(panels.description(failed, NOW)).count(summary) == 1
    )
    done = Status(status=pb.succeed, model_uri="file:///m", message="Training succeeded; it is at file:///m.")
    assert lines.situation(done, NOW).count("file:///m") == 1
    waiting = Status(status=pb.queuing, positionInQueue=3, message="Queueing, there are 3 training jobs …")
    assert "Queueing" not in lines.situation(waiting, NOW)
    assert "message: Alone." in lines.situation(Status(status=pb.running, message="Alone."), NOW)


def test_an_update_is_one_line() -> None:
    assert (
        lines.update(RUNNING)
        == "job 3: running, attempt 2, step 45/100, epoch 2/5, accuracy 0.88, loss 0.3125"
    )
    assert lines.update(Status(job_id=1, positionInQueue=3)) == "job 1: queuing, 3 jobs ahead"
    assert lines.update(Status(job_id=1)) == "job 1: queuing, next in the queue"
    launching = Status(job_id=1, status=pb.launch, ranks=RUNNING.ranks)
    assert lines.update(launching) == "job 1: launch, 1 of 2 instances running"
    done = Status(job_id=1, status=pb.succeed, model_uri="file:///models/1")
    assert lines.update(done) == "job 1: succeed, model file:///models/1"
    empty = Status(job_id=1, status=pb.succeed, model_uri="file:///models/1", has_model=False)
    assert lines.update(empty) == "job 1: succeed, no model"
    for picture in (panels.live(empty, NOW), panels.situation(empty, NOW)):
        assert "file:///models/1" not in drawn(picture)


def test_the_update_of_a_failed_job_explains_it() -> None:
    assert lines.update(FAILED).splitlines() == [
        "job 4: failure",
        "  what happened: A process used more memory than it may.",
        "  where: rank 1",
        "  detail: epoch 1",
        r"    \x1b[31mKilled",
        "  what to do: Set a smaller BATCH_SIZE.",
        "  retry: the same request may succeed if it is submitted again",
    ]


def test_a_failure_without_a_diagnosis_has_its_message() -> None:
    status = Status(job_id=1, status=pb.failure, message="reason unknown")
    assert lines.update(status) == "job 1: failure, reason unknown"


def test_the_diagnosis_is_shown_after_the_end_of_the_job() -> None:
    ending = Status(job_id=4, status=pb.running, ending=True, diagnosis=FAILED.diagnosis)
    assert lines.update(ending) == "job 4: running, ending"

"""Statuses as text, without a service or a terminal."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Console, RenderableType

from training_service._generated import training_service_pb2 as pb
from training_service.client.cli.render import lines, panels, words

Status = pb.GetTrainingStatusResponse
NOW = datetime(2025, 11, 21, 12, 0, 0, tzinfo=UTC)
HOSTILE = "[red]a\x1b[2J\r\nb\u202ec\x9b1m\tüñ😀"
TAMED = r"[red]a\x1b[2J\r\nb\u202ec\x9b1m\tüñ😀"


def before_now(**span: float) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromDatetime(NOW - timedelta(**span))
    return timestamp


def drawn(picture: RenderableType, width: int = 100) -> str:
    console = Console(width=width, markup=False, highlight=False, emoji=False, color_system=None)
    with console.capture() as captured:
        console.print(picture)
    return captured.get()


def metadata(**fields: object) -> pb.TrainingJobMetadata:
    return pb.TrainingJobMetadata(
        **{"algorithm": "bert", "dataset_id": "questions", "train_data_version_hash": "3f2a", **fields}  # type: ignore[arg-type]
    )


RUNNING = Status(
    job_id=3,
    status=pb.running,
    metadata=metadata(name="nightly", parameters={"LR": "0.1", "EPOCHS": "5"}),
    attempt=2,
    submitted_at=before_now(minutes=4),
    started_at=before_now(minutes=2, seconds=5),
    instances=2,
    ranks=[
        pb.RankStatus(rank=0, role="master", phase=pb.RANK_PHASE_RUNNING),
        pb.RankStatus(rank=1, role="worker", phase=pb.RANK_PHASE_FAILED, exit_code=137),
    ],
    progress=pb.Progress(
        step=45, total_steps=100, epoch=2, total_epochs=5, metrics={"loss": 0.31249, "accuracy": 0.88}
    ),
)
FAILED = Status(
    job_id=4,
    status=pb.failure,
    metadata=metadata(),
    diagnosis=pb.Diagnosis(
        category="out_of_memory",
        summary="A process used more memory than it may.",
        detail="epoch 1\n\x1b[31mKilled",
        resolution="Set a smaller BATCH_SIZE.",
        rank=1,
        retryable=True,
    ),
)


def test_text_of_others_cannot_move_the_cursor_or_break_the_line() -> None:
    assert words.printable(HOSTILE) == TAMED


def test_several_lines_stay_lines_and_are_tamed_one_by_one() -> None:
    assert words.printable_lines("a\tb\n\x1b[2Jc\x00") == ["a       b", r"\x1b[2Jc\x00"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (60, "1m 00s"), (3725, "1h 02m"), (90000, "1d 01h"), (864000, "10d 00h")],
)
def test_durations_have_their_two_largest_units(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


def test_a_span_that_ends_before_it_began_is_nothing() -> None:
    assert words.seconds_between(before_now(seconds=-30), NOW) == 0


def test_the_words_for_statuses_are_those_of_the_wire() -> None:
    assert [words.status_word(value) for value in pb.TrainingStatus.values()] == [
        "queuing",
        "launch",
        "running",
        "succeed",
        "failure",
        "cancelled",
    ]


def test_values_of_a_newer_service_are_shown_by_number() -> None:
    newer = Status(job_id=1, status=17, ranks=[pb.RankStatus(role="master", phase=18)])  # type: ignore[arg-type]
    assert "status 17" in lines.description(newer)
    assert "phase 18" in lines.description(newer)
    assert "status 17" in drawn(panels.description(newer, NOW))


@pytest.mark.parametrize(
    ("progress", "fraction"),
    [
        (pb.Progress(step=1, total_steps=4), 0.25),
        (pb.Progress(epoch=1, total_epochs=2), 0.5),
        (pb.Progress(step=9, total_steps=4), 1.0),
        (pb.Progress(step=-1, total_steps=4), 0.0),
        (pb.Progress(step=7), None),
    ],
)
def test_the_fraction_done_is_known_only_with_a_total(progress: pb.Progress, fraction: float | None) -> None:
    assert words.fraction_done(progress) == fraction


def test_metrics_that_are_not_numbers_are_shown_as_such() -> None:
    progress = pb.Progress(metrics={"loss": float("nan"), "norm": float("inf")})
    assert words.metrics(progress) == "loss nan, norm inf"


def test_of_many_metrics_the_first_are_shown() -> None:
    progress = pb.Progress(metrics={f"m{number:03}": number for number in range(100)})
    assert words.metrics(progress).endswith("m007 7, 92 more")


def test_a_large_group_is_counted_and_its_failures_named() -> None:
    group = [pb.RankStatus(rank=n, role="worker", phase=pb.RANK_PHASE_RUNNING) for n in range(64)]
    group[5].phase, group[5].exit_code = pb.RANK_PHASE_FAILED, 1
    assert words.ranks(group) == "63 running, 1 failed; worker 5 failed (exit code 1)"


def test_a_row_has_its_fields_between_tabs_whatever_the_names_are() -> None:
    status = Status(
        job_id=7,
        status=pb.queuing,
        metadata=metadata(name=HOSTILE),
        instances=3,
        submitted_at=before_now(),
    )
    assert lines.row(status).split("\t") == ["7", "queuing", "bert", TAMED, "3", "2025-11-21T12:00:00Z"]


def test_a_description_in_a_pipe_has_a_label_on_each_line() -> None:
    assert lines.description(RUNNING).splitlines() == [
        "job: 3",
        "status: running",
        "algorithm: bert",
        "name: nightly",
        "dataset: questions version 3f2a",
        "parameters: EPOCHS=5 LR=0.1",
        "instances: 2",
        "attempt: 2",
        "progress: step 45/100, epoch 2/5",
        "metrics: accuracy 0.88, loss 0.3125",
        "ranks: master running, worker 1 failed (exit code 137)",
        "submitted: 2025-11-21T11:56:00Z",
        "started: 2025-11-21T11:57:55Z",
    ]


def test_an_update_is_one_line() -> None:
    assert (
        lines.update(RUNNING)
        == "job 3: running, attempt 2, step 45/100, epoch 2/5, accuracy 0.88, loss 0.3125"
    )
    assert lines.update(Status(job_id=1, positionInQueue=3)) == "job 1: queuing, 3 jobs before it"
    assert lines.update(Status(job_id=1)) == "job 1: queuing, next in the queue"
    launching = Status(job_id=1, status=pb.launch, ranks=RUNNING.ranks)
    assert lines.update(launching) == "job 1: launch, 1 of 2 instances running"
    done = Status(job_id=1, status=pb.succeed, model_uri="file:///models/1")
    assert lines.update(done) == "job 1: succeed, model file:///models/1"
    empty = Status(job_id=1, status=pb.succeed, model_uri="file:///models/1", has_model=False)
    assert lines.update(empty) == "job 1: succeed, no model"
    for picture in (panels.live(empty, NOW), panels.story(empty, NOW)):
        assert "file:///models/1" not in drawn(picture)


def test_the_update_of_a_failed_job_explains_it() -> None:
    assert lines.update(FAILED).splitlines() == [
        "job 4: failure",
        "  what happened: A process used more memory than it may.",
        "  where: rank 1",
        "  detail: epoch 1",
        r"    \x1b[31mKilled",
        "  what to do: Set a smaller BATCH_SIZE.",
        "  retry: the same request may succeed if it is tried again",
    ]


def test_a_failure_without_a_diagnosis_has_its_message() -> None:
    status = Status(job_id=1, status=pb.failure, message="nobody knows")
    assert lines.update(status) == "job 1: failure, nobody knows"


def test_a_diagnosis_of_a_job_that_is_still_ending_waits_for_its_end() -> None:
    ending = Status(job_id=4, status=pb.running, ending=True, diagnosis=FAILED.diagnosis)
    assert lines.update(ending) == "job 4: running, ending"


def test_a_table_fits_its_width_and_keeps_ids_and_states() -> None:
    long = Status(job_id=2_147_483_647, status=pb.cancelled, metadata=metadata(name="n" * 500))
    for width in (60, 80, 100, 200):
        table = drawn(panels.jobs_table([RUNNING, FAILED, long], NOW), width)
        assert max(map(len, table.splitlines())) <= width
        assert all(text in table for text in ("2147483647", "cancelled", "running", "2m 05s"))


def test_pictures_show_markup_as_text() -> None:
    status = Status(job_id=1, status=pb.running, metadata=metadata(name=HOSTILE), message=HOSTILE)
    for picture in (panels.description(status, NOW), panels.live(status, NOW)):
        assert TAMED in drawn(picture)
        assert "\x1b" not in drawn(picture)
    assert "[red]a" in drawn(panels.jobs_table([status], NOW), 200)


def test_the_live_picture_has_title_bar_progress_and_ranks() -> None:
    text = drawn(panels.live(RUNNING, NOW))
    title, bar = text.splitlines()[:2]
    assert title == "Job 3  bert  nightly  running  2m 05s"
    assert set(bar.strip()) <= set("━╸╺")
    assert all(said in text for said in ("step 45/100", "loss 0.3125", "worker 1 failed (exit code 137)"))


def test_the_live_picture_of_a_failed_job_ends_with_the_diagnosis() -> None:
    picture = drawn(panels.live(FAILED, NOW))
    assert "What happened  A process used more memory than it may." in picture
    assert r"\x1b[31mKilled" in picture
    assert "What to do     Set a smaller BATCH_SIZE." in picture


def test_progress_without_a_total_has_a_bar_only_while_the_job_goes_on() -> None:
    going, ended = (
        Status(job_id=1, status=state, progress=pb.Progress(step=5)) for state in (pb.running, pb.succeed)
    )
    assert "━" in drawn(panels.live(going, NOW))
    assert "━" not in drawn(panels.live(ended, NOW))


RETRYING = Status(
    job_id=5,
    status=pb.queuing,
    metadata=metadata(),
    attempt=2,
    max_attempts=3,
    next_attempt_at=before_now(seconds=-20),
    moves=[
        pb.Move(status=pb.queuing, at=before_now(minutes=9)),
        pb.Move(status=pb.launch, at=before_now(minutes=8), attempt=1),
        pb.Move(
            status=pb.queuing,
            at=before_now(minutes=8),
            attempt=1,
            diagnosis=pb.Diagnosis(summary="No quota."),
        ),
        pb.Move(status=pb.queuing, at=before_now(minutes=7), attempt=1),
        pb.Move(status=pb.launch, at=before_now(minutes=6), attempt=2),
        pb.Move(status=pb.running, at=before_now(minutes=5), attempt=2),
        pb.Move(
            status=pb.queuing,
            at=before_now(minutes=1),
            attempt=2,
            diagnosis=pb.Diagnosis(summary="The node\nis lost."),
        ),
    ],
)


def test_a_job_between_two_attempts_says_how_it_got_there_and_when_it_goes_on() -> None:
    picture = drawn(panels.story(RETRYING, NOW))
    for line in (
        r"Attempt +2 of 3",
        r"Next attempt +[0-9: -]+ \(in 20s\)",
        r"[0-9: -]+ +submitted *\n",
        r"[0-9: -]+ +attempt 1 failed: No quota\.",
        r"[0-9: -]+ +queued again *\n",
        r"[0-9: -]+ +running, attempt 2 *\n",
        r"[0-9: -]+ +attempt 2 failed: The node\\nis lost\.",
    ):
        assert re.search(line, picture), (line, picture)
    assert "Queue" not in picture
    text = lines.story(RETRYING)
    assert "\nattempt: 2 of 3\n" in text
    assert "\nstory: 2025-11-21T11:51:00Z submitted\n    2025-11-21T11:52:00Z launch\n" in text
    assert lines.update(RETRYING) == "job 5: queuing, attempt 2 failed, the next follows"


def test_the_story_tells_which_rank_was_started_anew_and_why() -> None:
    why = pb.Diagnosis(category="killed", summary="Rank 2 was ended by SIGKILL.", rank=2)
    told = Status(
        job_id=1, moves=[pb.Move(status=pb.running, attempt=1, at=before_now(seconds=5), diagnosis=why)]
    )
    for text in (lines.story(told), drawn(panels.story(told, NOW))):
        assert "rank 2 started anew: Rank 2 was ended by SIGKILL." in text


def test_a_large_group_tells_how_often_its_ranks_were_started_anew() -> None:
    group = [pb.RankStatus(rank=n, role="worker", phase=pb.RANK_PHASE_RUNNING) for n in range(20)]
    group[3].restarts, group[4].restarts = 1, 2
    assert words.ranks(group) == "20 running, started anew 3 times"

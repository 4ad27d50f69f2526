"""Statuses as terminal output, without a service or a terminal."""

from __future__ import annotations

import re

from tests.support.statuses import (
    FAILED,
    HOSTILE,
    NOW,
    RETRYING,
    RUNNING,
    TAMED,
    Status,
    before_now,
    drawn,
    metadata,
)
from training_service._generated import training_service_pb2 as pb
from training_service.client.cli.render import lines, panels


def test_values_of_a_newer_service_are_shown_by_number() -> None:
    newer = Status(job_id=1, status=17, ranks=[pb.RankStatus(role="master", phase=18)])  # type: ignore[arg-type]
    assert "status 17" in lines.description(newer)
    assert "phase 18" in lines.situation(newer, NOW)
    assert "status 17" in drawn(panels.description(newer, NOW))


def test_a_table_fits_its_width_and_keeps_ids_and_states() -> None:
    long = Status(job_id=2_147_483_647, status=pb.cancelled, metadata=metadata(name="n" * 500))
    for width in (60, 80, 100, 200):
        table = drawn(panels.jobs_table([RUNNING, FAILED, long], NOW), width)
        assert max(map(len, table.splitlines())) <= width
        assert all(text in table for text in ("2147483647", "cancelled", "running", "2m 05s"))


def test_panels_show_markup_as_text() -> None:
    status = Status(job_id=1, status=pb.running, metadata=metadata(name=HOSTILE), message=HOSTILE)
    for picture in (panels.situation(status, NOW), panels.live(status, NOW)):
        assert TAMED in drawn(picture)
        assert "\x1b" not in drawn(picture)
    assert "[red]a" in drawn(panels.jobs_table([status], NOW), 200)


def test_the_live_view_has_title_bar_progress_and_ranks() -> None:
    text = drawn(panels.live(RUNNING, NOW))
    title, bar = text.splitlines()[:2]
    assert title == "Job 3  bert  nightly  running  2m 05s"
    assert set(bar.strip()) <= set("━╸╺")
    assert all(said in text for said in ("step 45/100", "loss 0.3125", "worker 1 failed (exit code 137)"))


def test_the_live_view_of_a_failed_job_ends_with_the_diagnosis() -> None:
    picture = drawn(panels.live(FAILED, NOW))
    assert "What happened  A process used more memory than it may." in picture
    assert r"\x1b[31mKilled" in picture
    assert "What to do     Set a smaller BATCH_SIZE." in picture


def test_progress_without_a_total_has_a_bar_only_while_the_job_is_live() -> None:
    going, ended = (
        Status(job_id=1, status=state, progress=pb.Progress(step=5)) for state in (pb.running, pb.succeed)
    )
    assert "━" in drawn(panels.live(going, NOW))
    assert "━" not in drawn(panels.live(ended, NOW))


def test_a_job_between_two_attempts_shows_its_history_and_next_attempt() -> None:
    assert re.search(r"Attempt +2 of 3", drawn(panels.situation(RETRYING, NOW)))
    picture = drawn(panels.description(RETRYING, NOW))
    for line in (
        r"Next attempt +[0-9: -]+ \(in 20s\)",
        r"[0-9: -]+ +submitted *\n",
        r"[0-9: -]+ +attempt 1 failed: No quota\.",
        r"[0-9: -]+ +queued again *\n",
        r"[0-9: -]+ +running, attempt 2 *\n",
        r"[0-9: -]+ +attempt 2 failed: The node\\nis lost\.",
    ):
        assert re.search(line, picture), (line, picture)
    assert "Queue" not in picture
    assert "\nattempt: 2 of 3\n" in lines.situation(RETRYING, NOW)
    text = lines.description(RETRYING)
    assert "\nhistory: 2025-11-21T11:51:00Z submitted\n    2025-11-21T11:52:00Z launch\n" in text
    assert lines.update(RETRYING) == "job 5: queuing, attempt 2 failed, waiting to retry: The node\\nis lost."


def test_the_history_names_a_restarted_rank_and_the_reason() -> None:
    why = pb.Diagnosis(category="killed", summary="Rank 2 was ended by SIGKILL.", rank=2)
    status = Status(
        job_id=1, moves=[pb.Move(status=pb.running, attempt=1, at=before_now(seconds=5), diagnosis=why)]
    )
    for text in (lines.description(status), drawn(panels.description(status, NOW))):
        assert "rank 2 restarted: Rank 2 was ended by SIGKILL." in text

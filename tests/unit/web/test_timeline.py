"""A job's history is one picture, from its submission to its end or to now."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.eviction import Eviction, EvictionReason
from job_tracker.domain.group import Phase, RankStatus
from job_tracker.domain.job import Ending, Job, JobState, Preemption, PreemptionReason, new_job
from job_tracker.domain.policies import Elastic, RetryPolicy
from job_tracker.domain.progress import MOST_SAVES, Progress, Saved, Saves
from tests.support.jobs import NOON, spec
from training_service.web.timeline import Event, timeline_of

CRASH = Diagnosis(category=Category.CRASHED, summary="Rank 0 crashed.", resolution="Read its log.")


def after(minutes: float) -> timedelta:
    return timedelta(minutes=minutes)


def failed_once() -> Job:
    job = new_job(1, spec(retry=RetryPolicy(max_attempts=2)), NOON)
    job = job.admitted(NOON + after(10)).running(NOON + after(11))
    job = replace(
        job,
        ranks=(RankStatus(0, Phase.FAILED, exit_code=1),),
        progress=Progress(saved=Saved(500, NOON + after(18))),
    )
    job = job.ended(Ending(JobState.BACKOFF, NOON + after(20), CRASH), NOON + after(20))
    return job.queued_again(NOON + after(21)).admitted(NOON + after(25)).running(NOON + after(26))


def test_states_lie_beside_each_other_in_the_order_of_time() -> None:
    line = timeline_of(failed_once(), NOON + after(40))
    assert [span.state for span in line.spans] == [
        "queued", "launching", "running", "backoff", "queued", "launching", "running"
    ]  # fmt: skip
    assert line.spans[0].left == 0
    for before, following in zip(line.spans, line.spans[1:], strict=False):
        assert abs(before.left + before.width - following.left) < 0.5
    assert line.spans[-1].left + line.spans[-1].width == 100
    assert line.spans[0].width == 25
    assert (line.begin, line.end) == (NOON, NOON + after(40))
    assert line.totals[JobState.RUNNING] == "23 min"


def test_failures_and_the_last_checkpoint_of_each_attempt_are_marks() -> None:
    job = replace(failed_once(), progress=Progress(saved=Saved(900, NOON + after(30))))
    line = timeline_of(job, NOON + after(40))
    assert [(mark.event, mark.place) for mark in line.marks] == [
        (Event.FAILURE, 50),
        (Event.SAVE, 45),
        (Event.SAVE, 75),
    ]
    assert "Rank 0 crashed." in line.marks[0].label
    assert "step 500" in line.marks[1].label
    assert line.events == {Event.SAVE: 2, Event.FAILURE: 1}


def test_all_checkpoints_of_an_attempt_are_marks_and_of_many_an_even_part() -> None:
    job, saves = failed_once(), Saves()
    for minute in range(1, 4):
        saves = saves.after(Saved(minute * 100, NOON + after(26 + minute)))
    line = timeline_of(
        replace(job, progress=Progress(saved=Saved(300, NOON + after(29)), saves=saves)), NOON + after(40)
    )
    labels = [mark.label for mark in line.marks if mark.event is Event.SAVE]
    assert labels[1:] == [
        "Checkpoint: step 100", "Checkpoint: step 200", "Last checkpoint of the attempt: step 300"
    ]  # fmt: skip
    assert line.events[Event.SAVE] == 4
    for number in range(4, 1001):
        saves = saves.after(Saved(number * 100, NOON + after(26 + number)))
    steps = [step for step, _ in saves.some]
    assert MOST_SAVES / 2 < len(steps) <= MOST_SAVES
    assert {second - first for first, second in pairwise(steps)} == {steps[0]}
    assert steps[-1] > 100 * 900
    assert len(saves.few().some) <= 8
    many = Progress(saved=Saved(100_000, NOON + after(1026)), saves=saves)
    assert timeline_of(replace(job, progress=many), NOON + after(1040)).events[Event.SAVE] == 1000


def test_a_preemption_and_the_restart_of_a_rank_are_marks() -> None:
    job = new_job(1, spec(instances=2, elastic=Elastic(min_instances=1)), NOON).admitted(NOON).running(NOON)
    job = job.restarting(1, CRASH, NOON + after(5))
    why = Preemption(by_job=9, why=PreemptionReason.RECLAIM, by_project=job.spec.project)
    ending = job.preempted(why, NOON + after(10)).ending
    assert ending is not None
    line = timeline_of(job.ended(ending, NOON + after(10)), NOON + after(20))
    assert [(mark.event, mark.place) for mark in line.marks] == [(Event.RESTART, 25), (Event.PREEMPTION, 50)]
    assert "job 9" in line.marks[1].label


def test_attempts_have_names_and_the_picture_has_words() -> None:
    line = timeline_of(failed_once(), NOON + after(40))
    assert [(tick.label, tick.place) for tick in line.attempts] == [("attempt 1", 25), ("attempt 2", 62.5)]
    assert [tick.label for tick in line.ticks] == ["0", "10 min", "20 min", "30 min"]
    assert line.text.startswith("queued 10 min, then launching 1 min, then running 9 min")
    assert "running (attempt 2) 14 min" in line.text


def test_an_attempt_that_was_evicted_or_preempted_is_a_mark() -> None:
    job = new_job(1, spec(), NOON).admitted(NOON + after(1)).running(NOON + after(2))
    drain = Eviction(why=EvictionReason.SHUT_DOWN, at=NOON + after(9), machine="n7")
    job = job.evicted(drain, NOON + after(9))
    assert job.ending is not None
    [mark] = timeline_of(job.ended(job.ending, NOON + after(10)), NOON + after(20)).marks
    assert (mark.event, mark.place) == (Event.EVICTION, 50)
    assert mark.label == "Evicted: n7, with rank 0, is being shut down."


def test_a_job_that_was_just_submitted_has_a_picture() -> None:
    line = timeline_of(new_job(1, spec(), NOON), NOON)
    assert len(line.spans) == 1
    assert 0 <= line.spans[0].left <= 100


def test_a_clock_that_is_behind_makes_no_negative_width() -> None:
    line = timeline_of(failed_once(), NOON - after(5))
    assert all(span.width > 0 and 0 <= span.left <= 100 for span in line.spans)


def test_an_ended_job_ends_with_its_state() -> None:
    job = failed_once()
    job = job.ended(Ending(JobState.SUCCEEDED, NOON + after(30)), NOON + after(30))
    line = timeline_of(job, NOON + after(99))
    assert line.end == NOON + after(30)
    assert line.text.endswith("succeeded")

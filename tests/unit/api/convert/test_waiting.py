"""The messages about waiting jobs, such as those whose start the cluster's own queue decides."""

import pytest

from job_tracker.domain.group import Phase, RankStatus
from job_tracker.domain.job import new_job
from job_tracker.jobs import JobView
from job_tracker.scheduling.mirror import Outlook
from job_tracker.scheduling.model import Reason
from job_tracker.scheduling.reasons import SENTENCES
from job_tracker.scheduling.waiting_view import Explanation
from tests.support.jobs import NOON, spec
from training_service.api.convert.jobs import status_of
from training_service.api.convert.waiting import explanation_of

QUEUED = new_job(7, spec(), NOON)
NOTE = "Waits for Kueue in the LocalQueue a: not QuotaReserved (Inadmissible): LocalQueue a doesn't exist"
GATED = QUEUED.admitted(NOON).observed((RankStatus(0, Phase.PENDING, note=NOTE, is_gated=True),))


def test_the_status_of_a_launched_job_that_waits_has_the_queues_own_words() -> None:
    assert status_of(JobView(GATED, 0)).message == f"Launching 1 instance, attempt 1. {NOTE}."


def test_the_status_of_a_job_behind_it_does_not_say_that_it_cannot_start() -> None:
    view = JobView(QUEUED, 3, Outlook(Reason.DELEGATED, None))
    assert status_of(view).message == (
        "Queueing, there are 3 training jobs waiting before this. "
        "The cluster's own queue decides when it starts."
    )


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (Reason.LOST_CAPACITY, "It cannot start with the capacity and the queues as they are."),
        (Reason.MAX_RUNNING, "It cannot start with the capacity and the queues as they are."),
        (Reason.ROOM, "Its start cannot be predicted yet."),
        (Reason.UNKNOWN_CAPACITY, "Its start cannot be predicted yet."),
    ],
)
def test_a_status_without_an_estimate_says_whether_the_job_can_start_at_all(
    reason: Reason, expected: str
) -> None:
    message = status_of(JobView(QUEUED, 0, Outlook(reason, None))).message
    assert message.endswith(f" {SENTENCES[reason]} {expected}")


def test_the_explanation_has_the_queues_own_words_or_a_sentence() -> None:
    for note, expected in ((NOTE, NOTE), ("", "The cluster's own queue decides when it starts.")):
        found = explanation_of(Explanation(job=GATED, reasons=(Reason.DELEGATED,), gate_note=note))
        assert [(each.code, each.message) for each in found.reasons] == [("delegated", expected)]

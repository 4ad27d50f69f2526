"""Numbers of jobs that wait for each reason."""

from job_tracker.scheduling.model import Gang, Part, Plan, Promise, Reason, Reserve
from job_tracker.scheduling.reasons import SENTENCES, binding_reasons, counts_by_reason
from job_tracker.scheduling.waiting import WaitingGangs


def gang(job_id: int, queue: str = "a") -> Gang:
    return Gang(job_id=job_id, queue=queue, parts=(Part(1, {}),))


def reserve(job_id: int, *reasons: Reason) -> Reserve:
    return Reserve(job_id, Promise(1.0, "default"), reasons)


def test_every_reason_has_a_sentence() -> None:
    assert set(SENTENCES) == set(Reason)


def test_the_jobs_that_a_plan_does_not_name_wait_for_their_order_or_their_share() -> None:
    waiting = WaitingGangs([gang(1), gang(2), gang(3), gang(4, "b"), gang(5, "b")])
    plan = Plan(
        reserved=(reserve(1, Reason.QUOTA, Reason.SHARE), reserve(2, Reason.ORDER), reserve(9, Reason.ROOM))
    )
    assert binding_reasons(plan, waiting) == {1: Reason.QUOTA, 2: Reason.ORDER}
    assert counts_by_reason(plan, waiting) == {Reason.QUOTA: 1, Reason.ORDER: 2, Reason.SHARE: 2}


def test_without_reservations_the_next_pass_decides() -> None:
    assert counts_by_reason(Plan(), WaitingGangs([gang(1)])) == {Reason.PENDING: 1}
    assert counts_by_reason(Plan(), WaitingGangs()) == {}

from job_tracker.scheduling.model import Gang, Part
from job_tracker.scheduling.waiting import WaitingGangs


def gang(job_id: int, priority: int = 0, queue: str = "default") -> Gang:
    return Gang(job_id=job_id, queue=queue, priority=priority, parts=(Part(1, {"cpu": 5}),))


def test_the_highest_priority_goes_first_and_then_the_order_of_submissions() -> None:
    waiting = WaitingGangs([gang(3), gang(1), gang(2, priority=7)])

    assert [one.job_id for one in waiting.in_order("default")] == [2, 1, 3]


def test_a_changed_gang_takes_its_new_place() -> None:
    waiting = WaitingGangs([gang(1), gang(2)])

    waiting.replace(gang(2, priority=1))

    assert [one.job_id for one in waiting.in_order("default")] == [2, 1]
    assert len(waiting) == 2


def test_a_queue_without_gangs_is_not_named() -> None:
    waiting = WaitingGangs([gang(1), gang(2, queue="other")])

    waiting.remove(2)
    waiting.remove(2)

    assert list(waiting.queues()) == ["default"]
    assert waiting.get(2) is None


def test_alike_parts_are_stored_once() -> None:
    waiting = WaitingGangs([gang(1), gang(2)])
    first, second = waiting.in_order("default")

    assert first.parts is second.parts

from training_service._generated.training_service_pb2 import RankPace, RankStatus
from training_service.client.cli.render import advice


def ranks(*times: tuple[float, float], phase: str = "training") -> list[RankStatus]:
    paces = [RankPace(step_seconds=step, waiting_seconds=wait, phase=phase) for step, wait in times]
    return [RankStatus(rank=rank, pace=pace) for rank, pace in enumerate(paces)]


def test_the_advice_for_ranks_that_all_wait_more_than_they_compute_says_what_to_change() -> None:
    said = advice.waiting(ranks((0.5, 0.4), (0.5, 0.3)))
    assert said.startswith("each of the 2 ranks waits for others for 60% of a step or more (0.3 of 0.5 s)")
    for change in ("batch", "BUCKET_MB", "GRADIENT_COMPRESSION", "fewer instances"):
        assert change in said


def test_ranks_that_mostly_compute_need_no_advice() -> None:
    assert advice.waiting(ranks((0.5, 0.25), (0.5, 0.3))) == ""


def test_one_late_rank_is_no_reason_to_change_the_exchange() -> None:
    assert advice.waiting(ranks((0.5, 0.4), (0.5, 0.4), (0.5, 0.01))) == ""


def test_a_rank_whose_steps_are_unknown_leaves_nothing_to_say() -> None:
    assert advice.waiting(ranks((0.5, 0.4), (0.0, 0.0))) == ""
    assert advice.waiting(ranks((0.5, 0.4))) == ""
    assert advice.waiting(ranks((0.5, 0.4), (0.5, 0.4), phase="evaluation")) == ""

"""The stacks of a stalled attempt are shown by the place at which ranks stand."""

from job_tracker.domain.diagnosis import Category, Diagnosis
from training_service.web.stacks import Standing, standings_of


def stalled(detail: str, category: Category = Category.STALLED) -> Diagnosis:
    return Diagnosis(category=category, summary="x", resolution="y", detail=detail)


def test_each_place_has_its_ranks_and_their_calls() -> None:
    detail = (
        "Rank 2: process (python) is stopped\n/home/me/train.py:7 in main\n/home/me/train.py:52 in read\n"
        "Ranks 0, 1 and 4 more:\n/home/me/train.py:7 in main\n/lib/comm.py:3 in barrier\n"
        "Rank 9: no report of its own"
    )
    assert standings_of(stalled(detail)) == [
        Standing(
            "Rank 2",
            "process (python) is stopped",
            "/home/me/train.py:7 in main\n/home/me/train.py:52 in read",
        ),
        Standing("Ranks 0, 1 and 4 more", "", "/home/me/train.py:7 in main\n/lib/comm.py:3 in barrier"),
        Standing("Rank 9", "no report of its own", ""),
    ]


def test_another_failure_and_a_stall_without_evidence_have_none() -> None:
    assert standings_of(None) == []
    assert standings_of(stalled("")) == []
    assert standings_of(stalled("Rank 2: x", Category.CRASHED)) == []

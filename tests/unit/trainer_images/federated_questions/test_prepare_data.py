"""Questions are divided among clients: each belongs to one."""

from collections import Counter

import pytest
from federated_questions.prepare_data import divided
from intent_classification.questions import Question

ASKED = [Question(f"what {number}", "ABC"[number % 3], "") for number in range(300)]


@pytest.mark.parametrize("clients", [1, 4, 30])
@pytest.mark.parametrize("skew", [0, 0.5, 100])
def test_each_question_belongs_to_one_client_and_each_client_has_some(clients: int, skew: float) -> None:
    found = divided(ASKED, clients, skew)
    assert len(found) == clients
    assert all(found)
    assert Counter(question.text for own in found for question in own) == Counter(each.text for each in ASKED)


def test_the_more_skew_the_fewer_classes_has_a_client() -> None:
    def largest_class(skew: float) -> float:
        found = divided(ASKED, 5, skew)
        return sum(max(Counter(each.coarse for each in own).values()) / len(own) for own in found) / 5

    assert largest_class(0) == pytest.approx(1 / 3, abs=0.01)
    assert largest_class(0) < largest_class(1) < largest_class(100)

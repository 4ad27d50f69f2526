"""Messages about unknown names: the known ones, the most similar first, and how to add one."""

import pytest

from job_tracker.catalog.entries import Entry, listed_like, most_like, required
from job_tracker.domain.errors import UnknownReference


def test_an_unknown_name_is_answered_with_the_known_ones_and_how_to_add_one() -> None:
    entries = {name: Entry(name=name, value=1) for name in ("images", "program", "intent-classification")}
    with pytest.raises(UnknownReference) as caught:
        required("algorithm", entries, "intent-clasification")
    assert str(caught.value) == (
        "algorithm: 'intent-clasification' doesn't exist; configured: intent-classification, images, "
        "program; to add one: `trainctl algorithm set FILE`, see docs/catalog.md"
    )
    with pytest.raises(
        UnknownReference, match=r"^dataset_id: '2' .*configured: none; .*`trainctl dataset set FILE`"
    ):
        required("dataset_id", {}, "2")


def test_the_most_similar_names_come_first_and_the_number_is_bounded() -> None:
    names = [f"model-{number:04}" for number in range(1000)]
    text = listed_like("model-0777x", names)
    assert text.startswith("model-0777, ")
    assert text.endswith(", and 980 more")
    assert len(most_like("model-0777x", names)) == 1000
    assert sorted(most_like("model-0777x", names)) == names


@pytest.mark.parametrize("name", ["", "x" * 10**6, "\x00", "\U0001f600"])
def test_any_text_may_be_unknown(name: str) -> None:
    assert most_like(name, ["b", "a"]) == ["a", "b"]

import pytest
import torch
from intent_classification.batches import Encoded, TrainingBatches, share_of
from intent_classification.model import BagOfEmbeddings, pack
from intent_classification.vocabulary import Vocabulary, terms_of
from trainer_kit.errors import DataError
from trainer_kit.group import Group

CPU = torch.device("cpu")
EXAMPLES = [Encoded(terms=[number, number], label=number) for number in range(53)]
"""Each example is identified by its label."""


def group_of(size: int) -> list[Group]:
    return [Group(rank, size, CPU) for rank in range(size)]


def steps(size: int, batch_size: int, epoch: int = 1) -> list[set[int]]:
    """Return the examples that a group takes in each step of an epoch."""
    return steps_from({"epoch": epoch, "taken": 0}, size, batch_size)


def steps_from(place: dict[str, int], size: int, batch_size: int) -> list[set[int]]:
    """Return the examples that a group takes in each step after a position in an epoch."""
    shares = [TrainingBatches(EXAMPLES, batch_size, group, seed=1) for group in group_of(size)]
    for share in shares:
        share.place.load_state_dict(place)
    return [
        set[int]().union(*(batch.labels.tolist() for batch in step))
        for step in zip(*(share.rest_of_epoch() for share in shares), strict=True)
    ]


@pytest.mark.parametrize(("size", "batch_size"), [(2, 4), (4, 2), (8, 1)])
def test_a_group_takes_the_same_examples_in_a_step_as_one_process_with_the_whole_batch(
    size: int, batch_size: int
) -> None:
    assert steps(size, batch_size) == steps(1, 8)


@pytest.mark.parametrize(("size", "batch_size"), [(1, 8), (3, 2), (3, 17)])
def test_every_step_is_full_and_no_example_is_repeated_in_an_epoch(size: int, batch_size: int) -> None:
    taken = steps(size, batch_size)
    assert [len(step) for step in taken] == [size * batch_size] * (53 // (size * batch_size))
    assert len(set[int]().union(*taken)) == sum(map(len, taken))


def test_every_epoch_has_its_own_order() -> None:
    assert steps(1, 8, epoch=1) == steps(1, 8, epoch=1)
    assert steps(1, 8, epoch=1) != steps(1, 8, epoch=2)


@pytest.mark.parametrize(("size", "batch_size"), [(2, 4), (4, 2), (1, 8)])
def test_a_group_of_any_size_continues_at_the_same_position(size: int, batch_size: int) -> None:
    before = TrainingBatches(EXAMPLES, 4, Group(0, 2, CPU), seed=1)
    next(taken := before.rest_of_epoch())
    next(taken)
    place = before.place.state_dict()
    assert place == {"epoch": 1, "taken": 16}
    assert steps_from(place, size, batch_size) == steps(1, 8)[2:]


def test_too_few_examples_for_one_step_are_refused() -> None:
    with pytest.raises(DataError, match="53 training examples do not fill one step"):
        TrainingBatches(EXAMPLES, 18, Group(0, 3, CPU), seed=1)


@pytest.mark.parametrize("size", [1, 2, 3, 60])
def test_a_group_evaluates_every_example_exactly_once(size: int) -> None:
    evaluated = [
        label
        for group in group_of(size)
        for batch in share_of(EXAMPLES, group)
        for label in batch.labels.tolist()
    ]
    assert sorted(evaluated) == list(range(53))


def test_the_terms_of_a_text_are_words_and_pairs() -> None:
    assert terms_of("Where's Rome ?") == [
        "where", "'", "s", "rome", "?", "^ where", "where '", "' s", "s rome", "rome ?",
    ]  # fmt: skip


def test_a_vocabulary_has_the_terms_that_occur_twice() -> None:
    vocabulary = Vocabulary.of(["who is it ?", "who was it ?"])
    assert vocabulary.terms == ["?", "^ who", "it", "it ?", "who"]
    assert vocabulary.encode("It was who ?") == [2, 4, 0]
    assert vocabulary.encode("unheard") == []


def test_a_texts_scores_do_not_depend_on_its_batch() -> None:
    model = BagOfEmbeddings(terms=10, fc_size=4, classes=3)
    texts = [[1, 2, 3], [], [9]]
    together = model(*pack(texts, CPU))
    alone = torch.cat([model(*pack([text], CPU)) for text in texts])
    torch.testing.assert_close(together, alone)

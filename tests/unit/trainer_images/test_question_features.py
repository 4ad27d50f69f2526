"""Questions as arrays, and their division among processes."""

from pathlib import Path

import numpy as np
import pytest
from question_features import TERMS, load, numbers_of, shares


def test_a_question_has_words_and_pairs_without_case() -> None:
    assert len(set(numbers_of("Who is it ?"))) == 8
    assert numbers_of("WHO is it ?") == numbers_of("Who is it ?")
    assert set(numbers_of("is it who ?")) != set(numbers_of("Who is it ?"))


def test_only_the_split_is_read_and_classes_count_from_zero(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text('"7","human"\n"9","place"\n')
    (tmp_path / "examples.csv").write_text('"who","7","train"\n"where","9","train"\n"when","7","test"\n')
    features, classes = load(str(tmp_path), "train")
    assert features.shape == (2, TERMS)
    assert sorted(np.flatnonzero(features[1])) == sorted(numbers_of("where"))
    assert classes.tolist() == [0, 1]


def test_shares_have_one_size_and_no_repeated_example() -> None:
    taken = shares(100, batch_size=8, size=3, seed=1, epoch=1)
    assert taken.shape == (4, 3, 8)
    assert len(np.unique(taken)) == taken.size


@pytest.mark.parametrize("size", [2, 3])
def test_a_step_takes_the_same_examples_for_any_group_size(size: int) -> None:
    alone = shares(100, batch_size=12, size=1, seed=1, epoch=1)
    grouped = shares(100, batch_size=12 // size, size=size, seed=1, epoch=1)
    assert grouped.reshape(alone.shape).tolist() == alone.tolist()


def test_every_epoch_and_seed_has_another_order() -> None:
    orders = {shares(100, 10, 1, seed, epoch).tobytes() for seed in (1, 2) for epoch in (1, 2)}
    assert len(orders) == 4

"""Assigns examples to the splits for training, validation and test."""

import hashlib
from enum import StrEnum

SEED = 1
TRAIN_SHARE, VALIDATION_SHARE = 0.8, 0.1  # all other texts are the test split


class Split(StrEnum):
    """The parts of the data, named by their use."""

    TRAIN = "train"
    """For training, and the only source of the vocabulary."""
    VALIDATION = "validation"
    """For comparing models."""
    TEST = "test"
    """For evaluating the finished model once."""


def split_of(text: str) -> Split:
    """Return the split of `text`, which depends only on its words.

    So no text moves from the test split to training when data is added or reordered. Texts that differ only
    in case and spacing have the same split.
    """
    digest = hashlib.sha256(f"{SEED}:{folded(text)}".encode()).digest()
    position = int.from_bytes(digest[:8], "big") / 2**64
    if position < TRAIN_SHARE:
        return Split.TRAIN
    return Split.VALIDATION if position < TRAIN_SHARE + VALIDATION_SHARE else Split.TEST


def folded(text: str) -> str:
    """Return `text` with normalized case and spacing. Texts with the same result count as equal."""
    return " ".join(text.casefold().split())

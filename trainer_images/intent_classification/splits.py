"""Which examples are for learning, which for choosing, and which only for the final word."""

import hashlib
from enum import StrEnum

SEED = 1
TRAIN_SHARE, VALIDATION_SHARE = 0.8, 0.1  # and the rest is for the test


class Split(StrEnum):
    """A part of the data, by what it may be used for."""

    TRAIN = "train"
    """What the model learns from, and the only part that its vocabulary is taken from."""
    VALIDATION = "validation"
    """What people compare models on."""
    TEST = "test"
    """What the finished model is judged on, once."""


def split_of(text: str) -> Split:
    """The split that `text` belongs to, now and always: it hangs on nothing but the words themselves.

    So data may be added or reordered, and no text ever moves from the test into training. Texts that
    differ in nothing but case and spacing stay together.
    """
    digest = hashlib.sha256(f"{SEED}:{folded(text)}".encode()).digest()
    position = int.from_bytes(digest[:8], "big") / 2**64
    if position < TRAIN_SHARE:
        return Split.TRAIN
    return Split.VALIDATION if position < TRAIN_SHARE + VALIDATION_SHARE else Split.TEST


def folded(text: str) -> str:
    """`text` with case and spacing evened out: two texts that are equal so are one and the same."""
    return " ".join(text.casefold().split())

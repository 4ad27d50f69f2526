"""Questions as arrays, and their division among processes, for the example programs of all frameworks.

A question is represented by the set of its terms: words, and pairs of adjacent words. Each term becomes a
number that is computed from its hash. So no vocabulary has to be built, shared or published, and all
processes of a group compute the same numbers.
"""

import csv
import re
import zlib
from collections.abc import Iterator
from itertools import pairwise

import fsspec
import numpy as np
from numpy.typing import NDArray

TERMS = 16_384


def load(uri: str, split: str, name: str = "examples.csv") -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
    """Load a split of the data in the folder `uri`: the terms and the class of each question.

    Classes are counted from 0.
    """
    numbers, classes = load_sparse(uri, split, TERMS, name)
    features = np.zeros((len(numbers), TERMS), np.bool_)
    for row, own in zip(features, numbers, strict=True):
        row[own] = True
    return features, classes


def load_sparse(
    uri: str, split: str, terms: int, name: str = "examples.csv"
) -> tuple[list[NDArray[np.int64]], NDArray[np.int32]]:
    """Load a split: for each question, the sorted numbers of its terms, and its class.

    The number of a term is from 0 to `terms` - 1. Classes are counted from 0.
    """
    classes = {label_id: number for number, label_id in enumerate(labels(uri))}
    chosen = [(text, label_id) for text, label_id, of in _rows(f"{uri}/{name}") if of == split]
    numbers = [np.unique(np.array(numbers_of(text, terms), np.int64)) for text, _ in chosen]
    return numbers, np.array([classes[label_id] for _, label_id in chosen], np.int32)


def labels(uri: str) -> list[str]:
    """Return the ids of the classes in the order of `uri`/labels.csv. The first is class 0."""
    return [label_id for label_id, _ in _rows(f"{uri}/labels.csv")]


def numbers_of(text: str, count: int = TERMS) -> list[int]:
    """Return the numbers of the terms of `text`, all below `count`.

    The terms are its words and its pairs of adjacent words. A punctuation mark counts as a word. The first
    word also forms a pair with `^`, which stands for the beginning of the text.
    """
    words = re.findall(r"\w+|[^\w\s]", text.lower())
    terms = words + [f"{left} {right}" for left, right in pairwise(["^", *words])]
    return [zlib.crc32(term.encode()) % count for term in terms]


def shares(examples: int, batch_size: int, size: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the indices of the examples of each process in each step, of shape (steps, size, batch_size).

    `size` is the number of processes. Each process has `batch_size` examples in a step. All processes get the
    same result. Examples that do not fill another step are dropped; which ones differs from epoch to epoch.
    """
    steps = examples // (size * batch_size)
    order = np.random.default_rng([seed, epoch]).permutation(examples)
    return order[: steps * size * batch_size].reshape(steps, size, batch_size)


def _rows(uri: str) -> Iterator[list[str]]:
    with fsspec.open(uri, "r", encoding="utf-8", newline="") as file:
        yield from csv.reader(file)

"""The loss of a multinomial logistic regression over sets of terms, and its gradient.

The gradient is computed only for the weights of these terms.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]
"""One row for each key, with one number for each class."""


@dataclass(frozen=True)
class SparseBatch:
    """A batch of questions, whose terms are given as indices into `keys`."""

    keys: NDArray[np.int64]
    """The terms of all questions: sorted, each once."""
    places: NDArray[np.int64]
    """The index into `keys` of each term of each question."""
    owners: NDArray[np.int64]
    """The number of the question to which each of `places` belongs."""
    labels: NDArray[np.int32]

    @classmethod
    def of(cls, terms: Sequence[NDArray[np.int64]], labels: NDArray[np.int32]) -> "SparseBatch":
        """Make a batch of questions with these terms."""
        owners = np.repeat(np.arange(len(terms)), [len(each) for each in terms])
        joined = np.concatenate([*terms, np.empty(0, np.int64)])
        keys, places = np.unique(joined, return_inverse=True)
        return cls(keys, places, owners, labels)

    def scores(self, rows: Rows) -> Rows:
        """Return the scores of each question. `rows` are the weights of `keys`."""
        found = np.zeros((len(self.labels), rows.shape[1]), np.float32)
        np.add.at(found, self.owners, rows[self.places])
        return found

    def gradient(self, rows: Rows) -> tuple[Rows, float]:
        """Return the gradient of the questions' summed loss, and the loss.

        The gradient is with respect to `rows`, the weights of `keys`.
        """
        scores = self.scores(rows)
        scores -= scores.max(1, keepdims=True)
        chances = np.exp(scores)
        sums = chances.sum(1, keepdims=True)
        chances /= sums
        numbers = np.arange(len(self.labels))
        # Do not take the logarithm of the probability, which may be 0 in float32.
        loss = float((np.log(sums[:, 0]) - scores[numbers, self.labels]).sum(dtype=np.float64))
        chances[numbers, self.labels] -= 1
        found = np.zeros_like(rows)
        np.add.at(found, self.places, chances[self.owners])
        return found, loss

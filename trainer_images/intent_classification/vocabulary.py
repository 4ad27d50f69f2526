"""Splits texts into terms, and numbers the terms."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Self

TOKEN = re.compile(r"\w+|[^\w\s]")
START = "^"
MIN_COUNT = 2


def terms_of(text: str) -> list[str]:
    """Return the words of `text` and the pairs of adjacent words, in lower case.

    Pairs carry more meaning than words: "how many" asks for a number, and "how do" for an explanation. The
    start of the text forms a pair with the first word, which is the most informative word of a question.
    """
    words = TOKEN.findall(text.lower())
    return words + [f"{left} {right}" for left, right in pairwise([START, *words])]


class Vocabulary:
    """The terms of a model with their numbers."""

    def __init__(self, terms: Sequence[str]) -> None:
        self.terms = terms
        self._numbers = {term: number for number, term in enumerate(terms)}

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """Return the vocabulary of the terms that occur at least twice in `texts`.

        Terms that occur once do not generalize.
        """
        counts = Counter(term for text in texts for term in terms_of(text))
        return cls(sorted(term for term, count in counts.items() if count >= MIN_COUNT))

    def __len__(self) -> int:
        return len(self.terms)

    def encode(self, text: str) -> list[int]:
        """Return the numbers of the known terms of `text`. There may be none."""
        return [self._numbers[term] for term in terms_of(text) if term in self._numbers]

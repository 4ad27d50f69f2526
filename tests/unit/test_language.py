"""Comments, docstrings and documents avoid words that make this project's sentences hard to read."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AVOIDED = (
    "told", "untold", "nobody", "somebody", "whoever", "whomever", "whosoever", "whatever", "whatsoever",
    "naught", "nought", "lest", "in vain", "at the door", "leads no more", "would have it",
    "also if", "also when", "also while", "also after", "also without", "from before",
)  # fmt: skip
"""Name the component, and write "gets", "no replica", "any", "admission" or "no longer" instead.

Instead of `also if` write "even if", or "if …, too"; instead of `from before`, "older than" or "that came
before".
"""
PATTERN = re.compile(
    r"(?:\A|(?<=\"\"\"))What\b(?= )|\b(?:"
    + "|".join(words.replace(" ", r"\s+") for words in AVOIDED)
    + r")\b",
    re.I,
)
"""A docstring opens with a verb or a noun, not with "What …"."""
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def test_comments_docstrings_and_documents_avoid_these_words() -> None:
    listed = ("git", "ls-files", "-z", "*.md", "*.py", ":!*/_generated/*")
    files = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    assert [found for file in files if file for found in avoided_in(file, (ROOT / file).read_text())] == []


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("a.py", '"""Adds.\n\nNobody subtracts."""', ["a.py:3: Nobody"]),
        ("a.py", "x = 1\ny = 2  # checked at the door", ["a.py:2: at the door"]),
        ("a.py", 'def f(told):\n    """Return `told`."""\n    return "nobody"', []),
        ("a.md", "Whoever\nis told", ["a.md:1: Whoever", "a.md:2: told"]),
        ("a.py", 'x = 1\n"""What x is."""', ["a.py:2: What"]),
        ("a.md", "It stops, also\nif it waits. See what waits.", ["a.md:1: also if"]),
        ("a.md", "Run it:\n\n```\necho nobody\n```\n\nIt is in\nvain.", ["a.md:7: in vain"]),
    ],
)
def test_each_avoided_word_is_found_with_its_line(file: str, text: str, expected: list[str]) -> None:
    assert list(avoided_in(file, text)) == expected


def avoided_in(file: str, text: str) -> Iterator[str]:
    if PATTERN.search(text):
        for first, prose in [(1, text)] if file.endswith(".md") else prose_of(text):
            without_code = CODE.sub(lambda code: "\n" * code[0].count("\n"), prose)
            for found in PATTERN.finditer(without_code):
                line = first + without_code.count("\n", 0, found.start())
                yield f"{file}:{line}: {' '.join(found[0].split())}"


def prose_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each docstring, also of attributes, and of each comment."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text

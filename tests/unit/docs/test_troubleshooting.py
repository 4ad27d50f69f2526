"""The messages quoted on the troubleshooting page are in the source."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
SOURCES = ("job_tracker", "training_service", "trainer_images/trainer_kit")
FOREIGN = {"Insufficient cpu"}
"""Messages of Kubernetes."""
FIELD = re.compile(r"\{[^{}]*\}|%[.\d]*[sdrg]")


def quoted() -> list[str]:
    """Return the messages of this project in the tables after the introduction."""
    rows = PAGE.partition("## The service does not start")[2].splitlines()
    columns = [line.split("|") for line in rows if line.startswith("| ")]
    cells = {row[1] if "`" in row[1] and " " in row[1].strip() else row[2] for row in columns}
    messages = [message for cell in cells for message in re.findall(r"`([^`]+ [^`]*)`", cell)]
    return sorted(set(messages) - FOREIGN)


def test_every_quoted_message_is_in_the_source() -> None:
    assert len(quoted()) > 50
    assert [message for message in quoted() if not is_in_source(message)] == []


def is_in_source(message: str) -> bool:
    pattern = re.compile(".*".join(re.escape(part) for part in message.split("…")), re.DOTALL)
    return any(pattern.search(text) for text in texts())


@cache
def texts() -> list[str]:
    """Return the strings of the source, with … in place of each inserted value."""
    files = [file for folder in SOURCES for file in (ROOT / folder).rglob("*.py")]
    return [text for file in files for text in strings_in(ast.parse(file.read_text()))]


def strings_in(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.JoinedStr(values=values):
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "…" for each in values)
        case ast.Constant(value=str(text)):
            yield FIELD.sub("…", text)
        case ast.Constant(value=bytes(data)):
            yield FIELD.sub("…", data.decode(errors="replace"))
        case _:
            for child in ast.iter_child_nodes(node):
                yield from strings_in(child)

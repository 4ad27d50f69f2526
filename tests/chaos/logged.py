"""The unexpected errors in the services' logs."""

import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

_RECORD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (?P<level>[A-Z]+) +(?P<text>.*)")
_OF_TRACEBACK = re.compile(r"\s*\| (?P<text>.*)")
_ERROR = re.compile(r"(?:\w+\.)*(?P<name>\w+)(?:: |$)")
_BAD = frozenset({"ERROR", "CRITICAL"})
_REMOVED = re.compile(r"\bhostile-\d+(-r\d+)? was removed while the group's processes were running")
"""A hostile job may remove the folder of its group (`delete-group`). The service is right to report it."""


def errors_in(files: Collection[Path], foreseen: Collection[str]) -> Counter[str]:
    """Count the errors in the logs, except for foreseen exceptions and the removal of hostile jobs' folders.

    Numbers are replaced, so that equal errors are counted together.
    """
    found: Counter[str] = Counter()
    for file in files:
        for text, exception in _errors(file):
            if _REMOVED.search(text):
                continue
            name = _ERROR.match(exception)
            if name is None or name["name"] not in foreseen:
                found[re.sub(r"\d+(\.\d+)?", "N", f"{text}: {exception}" if exception else text)] += 1
    return found


def _errors(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the text of each error and the last line of its traceback."""
    text, exception, is_raw = "", "", False
    with file.open(errors="replace") as lines:
        for line in lines:
            if record := _RECORD.match(line):
                if text:
                    yield text, exception
                text, exception, is_raw = record["text"] if record["level"] in _BAD else "", "", False
            elif traced := _OF_TRACEBACK.match(line):
                exception = traced["text"].strip() or exception
            elif line.startswith("Traceback "):  # a traceback outside the log
                if text:
                    yield text, exception
                text, exception, is_raw = line.strip().rstrip(":"), "", True
            elif is_raw and not line.startswith(" "):
                exception = line.strip() or exception
    if text:
        yield text, exception

"""The end of a log as evidence of a failure: the lines of the training, and the line with the cause."""

import re
from collections.abc import Sequence

from job_tracker.backends.shared.causes import PROGRESS, cause_in

READ_LINES, READ_BYTES = 200, 32 * 1024
"""The largest numbers of lines and bytes that are read from the end of a log.

torchrun's report of a failure has 35 lines, and 10 more for each process.
"""
_KEPT_LINES, _KEPT_CHARACTERS = 20, 4096
_BEFORE_CAUSE, _AFTER_CAUSE, _SHORT = 12, 6, 200
"""Limits for a log whose line with the cause is not among its last lines: the number of lines that are kept
before this line, the number of last lines that are kept, and the length to which each last line is cut.
"""

_COLOURS = re.compile(r"\x1b\[[0-?]{0,32}[ -/]{0,4}[@-~]")
_TRACEBACK = "Traceback (most recent call last):"
# If torchrun has started several processes and one fails, torchrun fails, too. Its log lines, its traceback
# and a table then follow the error of the training.
_OF_LAUNCHER = re.compile(r"[WEI]\d{4} \S+ +\d+ \S*torch/distributed/")
_CHILD_FAILED = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
_ROOT_CAUSE = "Root Cause (first observed failure):"
_TABLE_ENDS = re.compile(r"={20,}$")

# The stack of a crash in native code (PYTHONFAULTHANDLER) begins with the innermost call.
_STACK = re.compile(r"(?:Current thread|Thread|Stack) .*\(most recent call first\):$")
# Lines that programs print after the error, while they end.
_BESIDES = re.compile(
    r"(?:\[rank\d+\]: ?)?\[[WI]\d{4} "  # PyTorch's C++ warns, for example, of undestroyed process groups
    r"|note: run with `RUST_BACKTRACE|Extension modules: |warnings\.warn\(|\S+:\d+: \w*Warning: |[^\w]*$"
)


def evidence_of(log_end: str) -> str:
    """Return the last lines that the training printed; if it printed none, the last lines of its launcher.

    Colours are left out. Of consecutive reports of progress, only the last one stays. If the line that names
    the cause is not among the last lines, the result has this line, some lines before it, and some of the
    last lines.
    """
    log_end = _COLOURS.sub("", log_end)
    lines = _with_few_reports(_of_training(log_end.splitlines()) or log_end.splitlines())
    return "\n".join(_around_cause(lines))[-_KEPT_CHARACTERS:]


def failure_in(evidence: str) -> str:
    """Return the evidence from its first traceback to its end; the whole evidence if it has no traceback."""
    before, traceback, after = evidence.partition(_TRACEBACK)
    return traceback + after or before


def line_of_cause(evidence: str) -> str:
    """Return the line that names the cause, usually the last one; "" if there is none.

    After a crash in native code, this is the innermost call of the printed stack.
    """
    lines = [stripped for line in _of_training(evidence.splitlines()) if (stripped := line.strip())]
    stacks = [place for place, line in enumerate(lines[:-1]) if _STACK.match(line)]
    if stacks:
        current = next((place for place in stacks if lines[place].startswith("Current")), stacks[0])
        return lines[current + 1]
    return next((line for line in reversed(lines) if not _BESIDES.match(line)), "")


def _with_few_reports(lines: list[str]) -> list[str]:
    """Return the lines, with only the last one of consecutive reports of progress.

    The other reports say nothing about the failure, and would displace lines that describe the failure.
    """
    return [
        line
        for line, following in zip(lines, [*lines[1:], ""], strict=False)
        if not (line.startswith(PROGRESS) and following.startswith(PROGRESS))
    ]


def _around_cause(lines: Sequence[str]) -> Sequence[str]:
    cause = cause_in(lines)
    if cause is None or cause.at >= len(lines) - _KEPT_LINES:
        return lines[-_KEPT_LINES:]
    after = [line[:_SHORT] for line in lines[-_AFTER_CAUSE:]]
    return [*lines[max(0, cause.at - _BEFORE_CAUSE) : cause.at + 1], "…", *after]


def _of_training(lines: list[str]) -> list[str]:
    """Return the lines without those that torchrun printed about the failure of its processes."""
    failed = [place for place, line in enumerate(lines) if line.startswith((_CHILD_FAILED, _ROOT_CAUSE))]
    if not failed:
        return lines
    begin = next((place for place in range(failed[0], -1, -1) if lines[place] == _TRACEBACK), 0)
    ends = (place for place in range(failed[-1] + 2, len(lines)) if _TABLE_ENDS.match(lines[place]))
    end = next(ends, len(lines) - 1)
    return [line for line in lines[:begin] if not _OF_LAUNCHER.match(line)] + lines[end + 1 :]

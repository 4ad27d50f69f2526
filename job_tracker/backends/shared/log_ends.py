"""The end of a log as evidence of why a rank failed: what training printed, and the line that says why."""

import re

READ_LINES, READ_BYTES = 200, 32 * 1024
"""How much of a log's end is read: the report of torchrun takes 35 lines, and 10 more for each process."""
_KEPT_LINES, _KEPT_CHARACTERS = 20, 4096

_TRACEBACK = "Traceback (most recent call last):"
# torchrun, which starts several processes an instance, fails after they have: with log lines, a traceback of
# its own and a table. The error of the training is above.
_OF_LAUNCHER = re.compile(r"[WEI]\d{4} \S+ +\d+ \S*torch/distributed/")
_CHILD_FAILED = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
_ROOT_CAUSE = "Root Cause (first observed failure):"
_TABLE_ENDS = re.compile(r"={20,}$")

# The stack of a crash in native code (PYTHONFAULTHANDLER) begins with the innermost call.
_STACK = re.compile(r"(?:Current thread|Thread|Stack) .*\(most recent call first\):$")
# What programs print besides as they end, after the error.
_BESIDES = re.compile(
    r"(?:\[rank\d+\]: ?)?\[[WI]\d{4} "  # PyTorch's C++: process groups that were not destroyed
    r"|Extension modules: |warnings\.warn\(|\S+:\d+: \w*Warning: |[^\w]*$"
)


def evidence_of(log_end: str) -> str:
    """The last lines of what the training printed; those of its launcher if there are no others."""
    lines = _of_training(log_end.splitlines()) or log_end.splitlines()
    return "\n".join(lines[-_KEPT_LINES:])[-_KEPT_CHARACTERS:]


def failure_in(evidence: str) -> str:
    """The traceback in the evidence and what follows it, or all of it if there is none."""
    before, traceback, after = evidence.partition(_TRACEBACK)
    return traceback + after or before


def telling_line(evidence: str) -> str:
    """The line that says most of why it failed, as a rule the last; "" if none does."""
    lines = [stripped for line in _of_training(evidence.splitlines()) if (stripped := line.strip())]
    stacks = [place for place, line in enumerate(lines[:-1]) if _STACK.match(line)]
    if stacks:
        current = next((place for place in stacks if lines[place].startswith("Current")), stacks[0])
        return lines[current + 1]
    return next((line for line in reversed(lines) if not _BESIDES.match(line)), "")


def _of_training(lines: list[str]) -> list[str]:
    """The lines without those that a launcher has printed about the end of its processes."""
    failed = [place for place, line in enumerate(lines) if line.startswith((_CHILD_FAILED, _ROOT_CAUSE))]
    if not failed:
        return lines
    begin = next((place for place in range(failed[0], -1, -1) if lines[place] == _TRACEBACK), 0)
    ends = (place for place in range(failed[-1] + 2, len(lines)) if _TABLE_ENDS.match(lines[place]))
    end = next(ends, len(lines) - 1)
    return [line for line in lines[:begin] if not _OF_LAUNCHER.match(line)] + lines[end + 1 :]

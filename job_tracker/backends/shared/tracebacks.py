"""Finds the exception that ended a Python program, at the end of its log.

The log is hostile input: it is read line by line, and only the beginning of each line is searched.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

LONGEST_LINE = 1000
"""The number of characters at the beginning of each line that are searched."""

_LONGEST_PATH = 40

# Some launchers put the name of the process before each line: PyTorch and its elastic agent, Open MPI,
# Horovod.
_PROCESS = re.compile(r"\[(?:rank|default)?\d+(?:,\d+)?\](?:: ?|<std(?:err|out)>: ?)")
_HEADER = "Traceback (most recent call last):"
_COMMAND_FAILED = "subprocess.CalledProcessError"
_IGNORED = "Exception ignored "
_IN_A_GROUP = re.compile(r"[ +-]*\| ?")
_FRAME = re.compile(r'\s*File "([^"]{1,500})", line (\d{1,9})(?:, in (.{1,200}))?$')
# The class of an exception, and its message. Without the header of a traceback before the line, the name has
# to look like the name of an exception.
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]{0,200})(?:: ?(.*))?$")
_LIKE_AN_EXCEPTION = re.compile(r"(?:Error|Exception|Interrupt|Exit|Failure|Failed|Fault|Timeout|Group)$")
_GROUP = re.compile(r"(?:[\w.]*\.)?(?:Base)?ExceptionGroup$")
_DIRECT = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"

# Code that the user did not write. Frames in such code do not show the place of the mistake.
_LIBRARY = re.compile(r"^<|/(?:site|dist)-packages/|/lib(?:64)?/python[\d.]+/|/trainer_kit/")


@dataclass(frozen=True, slots=True)
class Frame:
    """A call in a traceback."""

    file: str
    line: int
    function: str = ""

    @property
    def is_of_library(self) -> bool:
        """Whether the call is in code that the user did not write."""
        return _LIBRARY.search(self.file) is not None

    def __str__(self) -> str:
        where = f"{_shortened(self.file)}, line {self.line}"
        return where if self.function in ("", "<module>") else f"{where}, in {self.function}"


@dataclass(frozen=True, slots=True)
class RaisedException:
    """An exception in a log."""

    at: int
    """The index of the line with the class and the message of the exception."""
    name: str
    message: str
    frames: tuple[Frame, ...] = ()
    """The calls of the traceback, the innermost last."""
    process: str = ""
    """The prefix that a launcher put before the line, such as `[rank1]:`; empty if there is none."""
    after: "RaisedException | None" = None
    """The earlier exception that caused this one, or that was being handled when this one was raised."""

    @property
    def line(self) -> str:
        """The line of the exception: its class and its message."""
        return f"{self.name}: {self.message}" if self.message else self.name

    @property
    def chain(self) -> Iterator["RaisedException"]:
        """The exceptions that led to this one, the latest first."""
        earlier = self.after
        while earlier is not None:
            yield earlier
            earlier = earlier.after

    @property
    def place(self) -> Frame | None:
        """The innermost call in the user's own code; if there is none, the innermost of all calls.

        None: no calls are known.
        """
        own = [frame for frame in self.frames if not frame.is_of_library]
        return next(iter((*own[-1:], *self.frames[-1:])), None)


@dataclass(slots=True)
class _Reading:
    """The state of reading the lines of one process."""

    frames: list[Frame] = field(default_factory=list)
    has_header: bool = False
    is_ignored: bool = False
    last: RaisedException | None = None
    follows: bool = False
    """Whether the next exception was caused by `last`, or was raised while `last` was handled."""
    in_group: bool = False
    has_leaf: bool = False
    """Whether the first exception in an exception group was found. Further exceptions do not count."""


def last_exception(lines: Sequence[str], is_consequence: Callable[[str], bool]) -> RaisedException | None:
    """Return the exception that ended the program; None if there is none.

    Usually, this is the last exception. If `is_consequence` returns true for its line, the exceptions that
    led to it are checked, and then those of other processes of the instance: the first one that is not a
    consequence counts. If there is none, the last exception counts. In an exception group, its first
    exception counts. If the program failed because of a command that it had started, the exception at the end
    of the command's output counts.
    """
    raised = list(exceptions(lines))
    if not raised:
        return None
    last = raised[-1]
    if last.name == _COMMAND_FAILED and last.after is None and (of_command := _before(lines, raised)):
        return of_command
    if not is_consequence(last.line):
        return last
    others = [each for each in raised if each.process != last.process]
    return next((each for each in (*last.chain, *others) if not is_consequence(each.line)), last)


def _before(lines: Sequence[str], raised: Sequence[RaisedException]) -> RaisedException | None:
    """Return the exception that was printed right before the traceback of the last one, by the same process.

    None: there is no such exception.
    """
    last = raised[-1]
    earlier = next((each for each in reversed(raised[:-1]) if each.process == last.process), None)
    if earlier is None:
        return None
    following = next((line for line in lines[earlier.at + 1 :] if line.strip()), "")
    return earlier if without_process(following)[1] == _HEADER else None


def exceptions(lines: Sequence[str]) -> Iterator[RaisedException]:
    """Yield the exceptions in these lines, in their order, without those that Python reports as ignored."""
    readings: dict[str, _Reading] = {}
    for at, raw in enumerate(lines):
        process, line = without_process(raw[:LONGEST_LINE])
        reading = readings.setdefault(process, _Reading())
        if reading.in_group or (line[:1] == " " and "| " in line[:80]):
            line = _out_of_group(reading, line)
        if not line.strip():
            continue
        if line.endswith(_HEADER):
            reading.frames.clear()
            reading.has_header = True
        elif frame := _FRAME.match(line):
            reading.frames.append(Frame(frame[1], int(frame[2]), frame[3] or ""))
            del reading.frames[:-50]
        elif line.startswith(("  ", "\t")):
            pass  # a line of source code, or the ^ marks below it
        elif line in (_DIRECT, _CONTEXT):
            reading.follows = True
        elif line.startswith(_IGNORED):
            reading.is_ignored = True
        else:
            if (found := _exception(reading, line)) and not reading.is_ignored:
                name, message = found
                message = (
                    message if not message.endswith(":") else _with_next(message, lines[at + 1 : at + 2])
                )
                after = reading.last if reading.follows else None
                reading.last = RaisedException(at, name, message, tuple(reading.frames), process, after)
                reading.follows = False
                yield reading.last
            if found:
                reading.is_ignored = False
            reading.frames.clear()
            reading.has_header = False


def without_process(line: str) -> tuple[str, str]:
    """Return the prefix that a launcher put before the line, and the line without it.

    The prefix is "" if there is none.
    """
    before = _PROCESS.match(line)
    return (before[0].strip(), line[before.end() :]) if before else ("", line)


def _exception(reading: _Reading, line: str) -> tuple[str, str] | None:
    """Return the class and message of the exception in a line; None if the line does not end a traceback.

    Of an exception group, only its first exception counts. The lines of the group itself and of its further
    exceptions give None.
    """
    match = _EXCEPTION.match(line)
    if not match or not (reading.frames or reading.in_group):
        return None
    name, message = match[1], (match[2] or "").strip()
    if not (reading.has_header and reading.frames) and not _LIKE_AN_EXCEPTION.search(name):
        return None
    if reading.in_group:
        if _GROUP.match(name):
            reading.has_leaf = False
            return None
        if reading.has_leaf:
            return None
        reading.has_leaf = True
    return name, message


def _out_of_group(reading: _Reading, line: str) -> str:
    """Return the line without the marks of an exception group, and note whether it has such marks."""
    bars = _IN_A_GROUP.match(line)
    reading.in_group = bars is not None or line.lstrip().startswith("+-")
    return line[bars.end() :] if bars else line


def _with_next(message: str, following: Sequence[str]) -> str:
    more = "".join(without_process(each[:LONGEST_LINE])[1].strip() for each in following)
    return f"{message} {more}" if more else message


def _shortened(path: str) -> str:
    """Return the path; if it is long, only its file name and folder, such as `…/work/train.py`."""
    if len(path) <= _LONGEST_PATH:
        return path
    return f"…/{'/'.join(path.split('/')[-2:])[-_LONGEST_PATH:]}"

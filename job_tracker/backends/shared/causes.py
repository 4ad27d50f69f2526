"""Finds the cause of a failure in the last lines of a log: the line that names the cause, and a remedy.

A log is hostile input. Each pattern is applied to a bounded part of one line, and no pattern has nested
repetitions, so the time is bounded. Text of a log is quoted on one line, and appears only in the message of
its own job.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from job_tracker.backends.shared.evidence import (
    LOST_PEER,
    MEMORY_OF_A_GPU,
    TRUST_THE_AUTHORITY,
    UNTRUSTED,
    USE_LESS_MEMORY,
)
from job_tracker.backends.shared.tracebacks import (
    LONGEST_LINE,
    Frame,
    RaisedException,
    last_exception,
    without_process,
)
from job_tracker.common.printable import printable, without_secrets
from job_tracker.domain.diagnosis import Category

LONGEST_CAUSE = 300
"""The largest number of characters of a log's line in a message."""
_SEARCHED_LINES = 20
PROGRESS = "::progress:: "
"""The marker of a report of progress (docs/reports.md). After an error, it shows that training continued."""
# A line about a step also shows that the training continued. A progress bar does not, because programs redraw
# it at their end.
_WENT_ON = re.compile(
    r"(?:.{0,60}\bINFO\b\W{1,5})?(?:root:)?\W{0,3}(?:[Gg]lobal[ _])?"
    r"(?:[Ss]tep|[Ee]poch|[Ii]ter(?:ation)?)\b[ :=#\[]{1,3}\d(?!.{0,200}(?:%\||it/s|s/it|\dit \[))"
)
_WARNING = re.compile(r".{0,60}\bWARN(?:ING)?\b|\S{1,200}:\d{1,9}: \w{0,40}Warning: ")
_PASSWORD = re.compile(r"(?<=://)[^/@\s]{1,200}@")

INSTALL = (
    "Install it where the job runs: with --requirements of trainctl run, in the image, or "
    "in the algorithm's process.virtual_environment. "
    "If it is your own file, check that it is in the folder of the program or on PYTHONPATH."
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of failure, recognised by a line.

    In `remedy`, {0} stands for the text that a capturing group of `pattern` has matched.
    """

    pattern: re.Pattern[str]
    remedy: str
    category: Category = Category.CRASHED


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of a failure, as far as a log shows it."""

    text: str
    """The line that names the cause, and the place in the code if it is known: safe to print."""
    remedy: str = ""
    """The remedy for this kind of failure; empty if its kind is unknown."""
    category: Category = Category.CRASHED
    at: int = 0
    """The index of the line that names the cause, among the last lines of the log."""


def _kind(pattern: str, remedy: str, category: Category = Category.CRASHED) -> Kind:
    return Kind(re.compile(pattern), remedy, category)


# The first matching kind counts. The patterns are applied to one line. For an exception, this line has the
# class and the message.
_KINDS = (
    _kind(
        r"CalledProcessError: Command ",
        "A command that the program started has failed. What it printed is in the log before this error.",
    ),
    Kind(UNTRUSTED, TRUST_THE_AUTHORITY),
    _kind(
        r"(?:Syntax|Indentation|Tab)Error\b",
        "Correct the syntax there. If it is correct, the job's Python is too old for this code.",
    ),
    _kind(
        r"No module named '?([\w.]{1,80})",
        f"The job's Python has no package or file of the name {{0}}. {INSTALL}",
    ),
    _kind(
        r"(\S{1,120}): cannot open shared object file",
        "The library {0} is missing where the job runs: install it in the image, or choose a build of the "
        "package that fits (for example without CUDA).",
    ),
    _kind(
        r"partially initialized module '([\w.]{1,80})'",
        "A module imports itself, directly or through other modules. Often one of your files has the name of "
        "a package, such as {0}.py: rename the file.",
    ),
    _kind(
        r"ImportError\b|cannot import name",
        f"The versions of two packages, or the names of two files, do not fit together. {INSTALL}",
    ),
    _kind(
        r"DataLoader worker .{0,60}(?:killed|exited)|bus error encountered in worker|out of shared memory",
        "A process that loads data has died, usually because shared memory or memory ran out. Raise shm_size "
        "(/dev/shm) or the memory, or use fewer workers. With num_workers=0, the log shows the error itself.",
    ),
    _kind(
        r"java\.lang\.OutOfMemoryError",
        "The heap of Java is too small: raise it (-Xmx), or use less memory.",
        Category.OUT_OF_MEMORY,
    ),
    Kind(
        MEMORY_OF_A_GPU,
        "The memory of the GPU is too small: reduce BATCH_SIZE or the model, train in bf16 or with "
        "checkpoints of activations, or use more instances with a sharded model.",
        Category.OUT_OF_MEMORY,
    ),
    _kind(
        r"MemoryError\b|std::bad_alloc|[Cc]an(?:'|no)t allocate memory",
        USE_LESS_MEMORY,
        Category.OUT_OF_MEMORY,
    ),
    _kind(
        r"No space left on device|Disk quota exceeded|\[Errno 28\]",
        "The disk is full. Keep fewer checkpoints, write temporary files to TMPDIR, raise scratch_size if "
        "the job runs in a pod or container, or free space on the machine.",
    ),
    _kind(
        r"Too many open files|received 0 items of ancdata",
        "The limit of open files is reached: close files and connections, use fewer workers of the "
        "DataLoader, or raise the limit (ulimit -n).",
    ),
    _kind(
        r"(?:No such file or directory|FileNotFoundError)(?:.{0,40}'([^']{1,120}))?",
        "A file is missing. The dataset of the job is at TRAINING_DATA_URI; other files have to be in the "
        "image, in the folder of the program, or on a path that every machine has.",
    ),
    _kind(
        r"PermissionError\b|[Pp]ermission denied|Read-only file system",
        "The job's user may not use this path. Write to MODEL_URI, CHECKPOINT_URI, HOME or TMPDIR, or let "
        "the operator correct the permissions.",
    ),
    _kind(
        r"EADDRINUSE|[Aa]ddress already in use",
        "The port is in use. Listen only on MASTER_PORT and only on rank 0, once; for other servers choose a "
        "free port (0).",
        Category.PORT_IN_USE,
    ),
    _kind(
        r"device-side assert triggered",
        "A check on the GPU has failed: usually, an index such as a label or a token id is out of range. Set "
        "CUDA_LAUNCH_BLOCKING=1, or run a step on the CPU, to see where.",
    ),
    _kind(
        r"no kernel image is available|not compiled with CUDA|CUDA driver version is insufficient",
        "The build of the framework does not fit the GPU or its driver: install one that does.",
    ),
    _kind(
        r"[Nn]o NVIDIA driver|No CUDA GPUs are available|no CUDA-capable device",
        "The rank has no GPU. Ask for one (resources, for example nvidia.com/gpu=1), or train on the CPU.",
    ),
    _kind(
        r"loss is (?:nan|not finite)",
        "The training has diverged: lower the learning rate, clip gradients, or use bf16 or a gradient "
        "scaler.",
    ),
    _kind(
        r"[Nn]on-?finite|contains? (?:nan|NaN)\b|FloatingPointError",
        "A number is NaN, infinite or out of range. If it is in the data, correct that. If the training has "
        "diverged, lower the learning rate, clip gradients, or use bf16 or a gradient scaler.",
    ),
    _kind(
        r"[Ww]atchdog caught collective|[Tt]imed out waiting \d{1,12} ?ms for (?:recv|send)|"
        r"Monitored ?[Bb]arrier|[Cc]ollective.{0,80}[Tt]imed? ?out",
        "A rank waited for the others in a collective operation, and not all came. Find the rank that "
        "stopped earlier or took another branch: compare the logs of all ranks (trainctl logs "
        "--all-ranks). All ranks need the same number of steps.",
    ),
    _kind(
        r"[Cc]onnection (?:closed|reset) by peer(?: \[([^\]\s]{1,60})\])?|[Rr]emote process "
        "exited|ncclRemoteError",
        "The rank lost another rank, which has ended or crashed. Read the end of the other ranks' logs "
        "(trainctl logs --all-ranks).",
    ),
    _kind(
        r"[Cc]onnection refused|DistNetworkError|DistStoreError|client socket has timed out|"
        r"could not (?:reach the master|join its group)|failed to connect to all addresses|"
        r"Name or service not known|Temporary failure in name resolution",
        "The rank could not reach another program over the network. If it was the master: read the log of "
        "rank 0, which has to run and listen on MASTER_PORT. Otherwise check the address, and whether jobs "
        "may reach it.",
    ),
    _kind(
        r"error: (?:unrecognized arguments|argument |the following arguments|ambiguous option|one of the "
        "arg)|"
        r"[Nn]o such option|Missing (?:option|argument)|[Ii]nvalid (?:option|value for)",
        "The program does not take these arguments. Correct the command or the parameters of the job.",
    ),
    _kind(
        r"([^\s:]{1,80}): command not found$|: (?:line )?\d{1,9}: ([^\s:]{1,80}): not found$",
        "The program {0} is not installed where the job runs: add it to the image, or to process.path.",
    ),
)
_VARIABLE = Kind(
    re.compile(r"KeyError: '([A-Za-z_]\w{0,80})'"),
    "The variable {0} is not set: send it as a parameter of the job (-p {0}=VALUE), or give the algorithm a "
    "default for it.",
)
_UNKNOWN = _kind("", "")
_PROGRAM_ERROR = re.compile(r"[\w./-]{1,80}: error: ")
# The last lines of a program that is ended by the C library or by assert().
_ABORT = re.compile(
    r"\w{1,40}\(\): |double free or|corrupted |\*\*\* stack smashing|.{1,300}: Assertion `.{1,300}' failed"
)
_FATAL = re.compile(r"Fatal Python error: (.{1,100})")
_WHAT = re.compile(r"\s{0,8}what\(\):\s{1,8}(.{1,500})")
_STACK = re.compile(r"(?:Current thread|Thread|Stack) .{0,60}\(most recent call first\):$")
_CALL = re.compile(r'\s{0,8}File "([^"]{1,500})", line (\d{1,9}) in (.{1,200})$')


def is_lost_peer(line: str) -> bool:
    """Return whether a failure with this line is only a consequence of another rank's failure."""
    line = line[:LONGEST_LINE]
    # LOST_PEER may also match an error about the certificate of a server, but this server is not a rank.
    return LOST_PEER.search(line) is not None and UNTRUSTED.search(line) is None


def cause_in(lines: Sequence[str]) -> Cause | None:
    """Return the cause of the failure of a program that printed these last lines; None if it is unknown."""
    raised = last_exception(lines, is_lost_peer)
    if raised is not None and _went_on(lines[raised.at + 1 :], raised.process):
        raised = None
    crash = _native_crash(lines)
    if crash is not None and (raised is None or crash.is_fatal or raised.at < crash.cause.at):
        return crash.cause
    if raised is not None:
        return _of_exception(raised)
    beginning = max(0, len(lines) - _SEARCHED_LINES)
    went_on = False
    for at in range(len(lines) - 1, beginning - 1, -1):
        line = without_process(lines[at][:LONGEST_LINE])[1].strip()
        if what := _WHAT.match(lines[at][:LONGEST_LINE]):
            line = what[1]
        elif went_on or _WARNING.match(line):
            continue
        if (found := _kind_of(line)) is not None:
            kind, name = found
            return Cause(safe(line), kind.remedy.format(safe(name)), kind.category, at)
        if what or _PROGRAM_ERROR.match(line) or _ABORT.match(line):
            return Cause(safe(line), at=at)
        went_on = went_on or line.startswith(PROGRESS) or _WENT_ON.match(line) is not None
    return None


def safe(text: str) -> str:
    """Return text of a log in a form that is safe in messages: one line of limited length, without secrets
    and double quotes.
    """
    text = _PASSWORD.sub("…@", without_secrets(text[:LONGEST_LINE].strip()))
    text = printable(text).replace('"', "'")
    return text if len(text) <= LONGEST_CAUSE else f"{text[:LONGEST_CAUSE]} …"


def _of_exception(raised: RaisedException) -> Cause:
    place = f" ({safe(str(raised.place))})" if raised.place else ""
    text = f"{safe(raised.line)}{place}"
    line = raised.line[:LONGEST_LINE]
    in_environment = any(
        frame.file == "<frozen os>" or frame.file.endswith("/os.py") for frame in raised.frames
    )
    variable = _VARIABLE.pattern.match(line) if in_environment else None
    if variable is not None:
        return Cause(text, _VARIABLE.remedy.format(safe(variable[1])), at=raised.at)
    found = _kind_of(line)
    if found is None:  # perhaps the exception only wraps an exception of a known kind
        for earlier in raised.chain:
            if found := _kind_of(earlier.line[:LONGEST_LINE]):
                text = f"{text}, after {safe(earlier.line)}"
                break
        else:
            first = next(reversed(list(raised.chain)), None)
            return Cause(f"{text}, after {safe(first.line)}" if first else text, at=raised.at)
    kind, name = found
    return Cause(text, kind.remedy.format(safe(name)), kind.category, raised.at)


def _went_on(lines: Sequence[str], process: str) -> bool:
    """Return whether these lines, which follow an error of `process`, show that this process continued to
    train.

    If the last line is about a step, lines about steps do not count: another thread, or another process with
    the same log, may have printed them. Reports of progress always count.
    """
    split = (without_process(each[:LONGEST_LINE]) for each in lines)
    own = [line for of, line in split if of == process and line.strip()]
    if any(line.startswith(PROGRESS) for line in own):
        return True
    return any(map(_WENT_ON.match, own)) and not _WENT_ON.match(own[-1])


def _kind_of(line: str) -> tuple[Kind, str] | None:
    """Return the kind of failure that the line shows, and the text in it that the remedy names; None if
    the kind is unknown.
    """
    for kind in _KINDS:
        if found := kind.pattern.search(line):
            return kind, next(filter(None, found.groups()), "")
    return None


@dataclass(frozen=True, slots=True)
class _NativeCrash:
    """A stack that faulthandler has printed."""

    cause: Cause
    is_fatal: bool
    """Whether the stack certainly shows a crash.

    If false, the program may have printed the stack and continued.
    """


def _native_crash(lines: Sequence[str]) -> _NativeCrash | None:
    """Return the crash in native code that the lines show, with its innermost Python call; None if there
    is none.
    """
    stacks = [
        at for at, line in enumerate(lines[:-1]) if _STACK.match(without_process(line[:LONGEST_LINE])[1])
    ]
    if not stacks:
        return None
    plain = [without_process(line[:LONGEST_LINE])[1] for line in lines]
    current = next((at for at in stacks if plain[at].startswith("Current")), stacks[0])
    calls = [_CALL.match(line) for line in plain[current + 1 :]]
    frames = [Frame(call[1], int(call[2]), call[3]) for call in takewhile(bool, calls) if call]
    if not frames:
        return None
    fatal = next((found for line in plain[:current] if (found := _FATAL.match(line))), None)
    own = next((frame for frame in frames if not frame.is_of_library), frames[0])
    caller = f", called from {own}" if own is not frames[0] else ""
    place = f"{frames[0]}{caller}"
    if fatal is None:
        return _NativeCrash(Cause(safe(place), at=current + 1), is_fatal=False)
    if fatal[1] == "Aborted" and (what := _last_what(plain[:current])):
        kind, name = _kind_of(what) or (_UNKNOWN, "")
        text = f"{safe(what)} ({safe(place)})"
        cause = Cause(text, kind.remedy.format(safe(name)), kind.category, current + 1)
        return _NativeCrash(cause, is_fatal=True)
    return _NativeCrash(Cause(safe(f"{fatal[1]} in {place}"), at=current + 1), is_fatal=True)


def _last_what(lines: Sequence[str]) -> str:
    """Return the message of the last C++ exception in the lines; "" if there is none."""
    return next((found[1] for line in reversed(lines) if (found := _WHAT.match(line))), "")

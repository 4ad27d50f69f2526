"""Reads traces of jobs: CSV files, compressed or not, with one job in each line.

Columns are found by name.
"""

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from job_tracker.domain.naming import DEFAULT_QUEUE
from job_tracker.scheduling.model import INSTANCES, Allocation, Expected, Part, Promise
from job_tracker.scheduling.simulation.attempts import SAVES_AT_NOTICE, Saving

MOST_BYTES: Final = 512 * 1024 * 1024
"""The largest size of the uncompressed text."""
MOST_JOBS: Final = 1_000_000
MOST_SECONDS: Final = 1e10
MOST_INSTANCES: Final = 1_000_000
_MOST_CHARACTERS: Final = 10_000
_MOST_NAME: Final = 200
_NEEDED: Final = ("submit_s", "run_s", "gpus")
_SHAPE: Final = ("gpu_milli", "cpu_milli", "memory_mib", "qos")
_QOS: Final = {"BE": 0, "Burstable": 1, "LS": 2, "Guaranteed": 3}


class TraceError(ValueError):
    """A file is not a trace, or its jobs cannot be used.

    If a value is not allowed, the message names file, line, column, value and what is allowed.
    """


@dataclass(frozen=True, slots=True)
class Begun:
    """The start and the allocation of a job that already runs when a simulation begins."""

    at: float
    """The start of the job, in seconds from the start of the simulation; 0 or less."""
    allocation: Allocation
    saved_at: float | None = None
    """The time of the job's last reported checkpoint, in seconds from the start of the simulation.

    None: the job has reported none.
    """


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a trace: the time of its submission, its run time, and its resources."""

    submitted_at: float
    """The time in seconds from the start of the trace. Less than 0: submitted before the start."""
    run: float
    """The run time in seconds.

    For an elastic job, it is the run time in the size that the job asks for. If the job already runs at the
    start of the simulation, it is the run time in the size that the job has then.
    """
    instances: int
    """The number of instances: one for each GPU."""
    queue: str = DEFAULT_QUEUE
    algorithm: str = ""
    priority: int = 0
    project: str = ""
    said: Expected | None = None
    """The expected run time that is stated with the job. None: none is stated."""
    each: tuple[Part, ...] = ()
    """The job's parts. Empty: one part of `instances` equal instances, without other resources."""
    least: int = 0
    """The smallest number of trainers with which the job starts. 0: it starts only with all trainers."""
    flavor: str = ""
    """The flavor that the job asks for. Empty: any flavor."""
    promise: Promise | None = None
    """A promise that was made before the simulation. Its time is in seconds from the simulation's start."""
    begun: Begun | None = None
    saving: Saving = SAVES_AT_NOTICE
    preemptions: int = 0
    """The number of times that the job was stopped for others before the start of the simulation."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that the job asks for."""
        return self.each or (Part(self.instances, {INSTANCES: 1}),)


def read(path: Path) -> list[TraceJob]:
    """Return a file's jobs that have GPUs, in the order of their submission times.

    Raises TraceError if the file is not a trace or has no such job, and OSError if it cannot be read.

    The columns submit_s, run_s and gpus are needed. These columns are optional: queue, project, algorithm,
    expected_s, priority or qos, least, and saves. If there is no column algorithm, the columns
    gpu_milli, cpu_milli, memory_mib and qos together stand for the algorithm. Other columns are ignored.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as stream:
            bounded = io.BufferedReader(_Bounded(stream, str(path)))
            text = io.TextIOWrapper(bounded, encoding="utf-8", newline="")
            jobs = list(_jobs(str(path), text))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TraceError(f"{path} is not a complete gzip file: {error}; copy it again") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} is not text in UTF-8: {error}") from error
    if not jobs:
        raise TraceError(f"{path} has no job with gpus above 0, and a trace needs at least one")
    jobs.sort(key=lambda job: job.submitted_at)
    return jobs


class _Bounded(io.RawIOBase):
    """A stream that fails after MOST_BYTES, since a small gzip file can expand to a very large text."""

    def __init__(self, stream: "gzip.GzipFile | io.BufferedReader", name: str) -> None:
        self._stream, self._name, self._left = stream, name, MOST_BYTES

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        """Read bytes into the buffer, and return their number. Raises TraceError after MOST_BYTES."""
        data = self._stream.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise TraceError(f"{self._name} has more than {MOST_BYTES} bytes of text; use a part of it")
        buffer[: len(data)] = data
        return len(data)


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a file, whose values are checked as they are read."""

    file: str
    number: int
    values: Sequence[str]
    columns: dict[str, int]

    def has(self, column: str) -> bool:
        return column in self.columns

    def text(self, column: str) -> str:
        place = self.columns[column]
        return self.values[place].strip() if place < len(self.values) else ""

    def name(self, column: str) -> str:
        value = self.text(column)
        if len(value) > _MOST_NAME or not value.isprintable():
            raise self.refused(column, f"a name of at most {_MOST_NAME} printable characters")
        return value

    def seconds(self, column: str) -> float:
        allowed = f"a number of seconds from 0 to {MOST_SECONDS:.0f}"
        try:
            value = float(self.text(column))
        except ValueError:
            raise self.refused(column, allowed) from None
        if not (math.isfinite(value) and 0 <= value <= MOST_SECONDS):
            raise self.refused(column, allowed)
        return value

    def whole(self, column: str, least: int, most: int) -> int:
        value = self.text(column)
        number = int(value) if value.removeprefix("-").isdecimal() and len(value) < 12 else None
        if number is None or not least <= number <= most:
            raise self.refused(column, f"a whole number from {least} to {most}")
        return number

    def refused(self, column: str, allowed: str) -> TraceError:
        return TraceError(
            f"{self.file}, line {self.number}: {column} is {self.text(column)[:80]!r}; allowed is {allowed}"
        )


def _jobs(name: str, text: io.TextIOWrapper) -> Iterator[TraceJob]:
    rows = csv.reader(_short_lines(name, text), strict=True)
    try:
        columns = _columns(name, next(rows, []))
        for count, values in enumerate((row for row in rows if row), start=1):
            line = _Line(name, rows.line_num, values, columns)
            if len(values) != len(columns):
                raise TraceError(
                    f"{name}, line {rows.line_num}: it has {len(values)} values, but the file has "
                    f"{len(columns)} columns"
                )
            if count > MOST_JOBS:
                raise TraceError(f"{name} has more than {MOST_JOBS} jobs; use a part of it")
            job = _job(line)
            if job.instances:
                yield job
    except csv.Error as error:
        raise TraceError(f"{name}, line {rows.line_num}: not CSV: {error}") from error


def _short_lines(name: str, text: io.TextIOWrapper) -> Iterator[str]:
    number = 0
    while line := text.readline(_MOST_CHARACTERS + 1):
        number += 1
        if len(line) > _MOST_CHARACTERS:
            raise TraceError(f"{name}, line {number}: it is longer than {_MOST_CHARACTERS} characters")
        yield line


def _columns(name: str, heads: Sequence[str]) -> dict[str, int]:
    columns: dict[str, int] = {}
    for place, head in enumerate(heads):
        column = head.strip().removeprefix("\ufeff")
        if column in columns:
            raise TraceError(f"{name}, line 1: column {column[:80]!r} is there twice; names must differ")
        columns[column] = place
    if missing := [column for column in _NEEDED if column not in columns]:
        raise TraceError(
            f"{name}, line 1: no column {', '.join(missing)}; the first line names the columns, and "
            f"{', '.join(_NEEDED)} are needed"
        )
    return columns


def _job(line: _Line) -> TraceJob:
    instances = line.whole("gpus", 0, MOST_INSTANCES)
    return TraceJob(
        submitted_at=line.seconds("submit_s"),
        run=line.seconds("run_s"),
        instances=instances,
        queue=(line.name("queue") if line.has("queue") else "") or DEFAULT_QUEUE,
        algorithm=_algorithm(line),
        priority=_priority(line),
        project=line.name("project") if line.has("project") else "",
        said=_said(line),
        least=line.whole("least", 0, instances) if line.has("least") and line.text("least") else 0,
        saving=_saving(line),
    )


def _saving(line: _Line) -> Saving:
    text = line.text("saves") if line.has("saves") else ""
    if text in ("", "notice"):
        return SAVES_AT_NOTICE
    if text == "never":
        return Saving(on_notice=False)
    try:
        every = line.seconds("saves")
    except TraceError:
        every = 0.0
    if not every:
        raise line.refused("saves", "notice, never, or a number of seconds above 0 between two checkpoints")
    return Saving(every=every, on_notice=False)


def _algorithm(line: _Line) -> str:
    """Return the algorithm of the job in a line.

    If the file has no column for the algorithm, the job's resources and QoS class stand for the algorithm:
    jobs that ask for the same resources probably have the same algorithm.
    """
    if line.has("algorithm"):
        return line.name("algorithm")
    return "/".join(line.name(column) for column in _SHAPE if line.has(column))


def _said(line: _Line) -> Expected | None:
    if not line.has("expected_s") or not line.text("expected_s"):
        return None
    seconds = line.seconds("expected_s")
    return Expected(median=seconds, high=seconds)


def _priority(line: _Line) -> int:
    if line.has("priority"):
        return line.whole("priority", -1_000_000, 1_000_000)
    if not line.has("qos"):
        return 0
    if line.text("qos") not in _QOS:
        raise line.refused("qos", " or ".join(_QOS))
    return _QOS[line.text("qos")]

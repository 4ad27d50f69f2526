"""The audit file of the ranks, and its checks."""

import os
import signal
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Line:
    """An event of a rank: start, end, save or resume; of a hostile rank also done or child (a process that
    hides). `twice` and `beside` are violations.
    """

    event: str
    job: int
    attempt: int
    rank: int
    restarts: int
    pid: int
    ticks: int
    """The start time of the process (proc(5)). Together with the pid it identifies the process."""
    at: float
    """Seconds of the boot clock."""
    what: str

    @property
    def run(self) -> tuple[int, int, int]:
        """Attempt, rank and restarts: they identify a start of a rank within the job."""
        return self.attempt, self.rank, self.restarts

    @property
    def is_alive(self) -> bool:
        """Return whether the process that wrote the line still runs."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return False
        return int(fields[19]) == self.ticks and fields[0] != "Z"


class Audit:
    """The lines of the audit file, by job."""

    def __init__(self, file: Path) -> None:
        self.of_job: dict[int, list[Line]] = defaultdict(list)
        for text in file.read_text().splitlines() if file.exists() else ():
            line = _parsed(text)
            self.of_job[line.job].append(line)

    def __getitem__(self, job: int) -> Sequence[Line]:
        return self.of_job.get(job, ())

    def count(self, *events: str) -> int:
        """Count the lines of these events, over all jobs."""
        return sum(line.event in events for lines in self.of_job.values() for line in lines)

    def first_start(self, job: int) -> float | None:
        """Return when a rank of the job first started."""
        return min((line.at for line in self[job] if line.event == "start"), default=None)

    def doubles(self, job: int) -> Iterator[str]:
        """Yield starts and ends that happened more than once, and ranks that ran twice at once."""
        for event in ("start", "end"):
            counts = Counter(line.run for line in self[job] if line.event == event)
            for run, count in counts.items():
                if count > 1:
                    yield f"{_named(job, run)}: {count} times {event}"
        yield from (
            f"{_named(job, line.run)} ran twice at once" for line in self[job] if line.event == "twice"
        )

    def overlaps(self, job: int, excused: Collection[tuple[int, int]]) -> Iterator[str]:
        """Yield attempts that began while another attempt still ran, unless the other attempt is excused."""
        left = [attempt for other, attempt in excused if other == job]
        for line in self[job]:
            if line.event == "beside" and not any(attempt < line.attempt for attempt in left):
                yield f"{_named(job, line.run)} began while another attempt ran"
        times: dict[int, list[float]] = defaultdict(list)
        for line in self[job]:
            times[line.attempt].append(line.at)
        ordered = sorted(times)
        for earlier, later in pairwise(ordered):
            if max(times[earlier]) > min(times[later]) and earlier not in left:
                yield f"job {job}: attempts {earlier} and {later} ran at the same time"

    def lost_steps(self, job: int) -> Iterator[str]:
        """Yield attempts that did not continue from the last checkpoint."""
        kept = 0
        for line in sorted(self[job], key=lambda line: line.at):
            if line.event == "save":
                kept = int(line.what)
            if line.event == "resume" and int(line.what) < kept:
                yield f"{_named(job, line.run)} continued from step {line.what}, but step {kept} was saved"

    def orphans(self, job: int, excused: Collection[tuple[int, int]]) -> Iterator[str]:
        """Yield processes that still run, except hidden ones of excused attempts."""
        for line in self._left(job):
            if line.event == "start" or (job, line.attempt) not in excused:
                yield f"{_named(job, line.run)} still runs: pid {line.pid} ({line.what})"

    def kill_left(self) -> None:
        """Kill the processes that still run."""
        for line in (line for job in self.of_job for line in self._left(job)):
            with suppress(ProcessLookupError):
                os.kill(line.pid, signal.SIGKILL)

    def _left(self, job: int) -> Iterator[Line]:
        return (line for line in self[job] if line.event in ("start", "child") and line.is_alive)


def _parsed(text: str) -> Line:
    event, job, attempt, rank, restarts, pid, ticks, at, what = text.split(" ", 8)
    return Line(
        event, int(job), int(attempt), int(rank), int(restarts), int(pid), int(ticks), float(at), what
    )


def _named(job: int, run: tuple[int, int, int]) -> str:
    attempt, rank, restarts = run
    return f"job {job} attempt {attempt} rank {rank}" + (f" restart {restarts}" if restarts else "")

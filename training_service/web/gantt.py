"""The jobs that hold machines, and the reserved starts of waiting jobs, as bars over time."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from job_tracker.scheduling.queue_snapshot import QueueSnapshot, SeenJob
from job_tracker.scheduling.shapes import held_parts, total
from training_service.web.scales import Tick, TimeScale
from training_service.web.showing import duration

MOST_LANES: Final = 40
_LEAST_PAST, _MOST_PAST = 0.03, 0.25
"""The shortest and the longest shown time before now, as shares of the shown time after now."""
_SHORTEST: Final = 60.0
_LONGEST: Final = 14 * 86_400.0
"""The largest number of seconds after now that the picture shows."""
_WITHOUT_LENGTH: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a lane. Its left edge and its width are in percent of the lane's width."""

    left: float
    width: float
    kind: str
    """The kind of the bar: running, expected, reserved, or unknown if the end is not known."""


@dataclass(frozen=True, slots=True)
class Lane:
    """The line of the picture that shows one job."""

    job: SeenJob
    instances: int
    bars: Sequence[Bar]
    text: str
    """When the job starts or how long it has run, and how long it will run, in words."""
    at: datetime
    """The time at which the job began, or will begin."""


@dataclass(frozen=True, slots=True)
class Gantt:
    """The picture, for its template."""

    lanes: Sequence[Lane]
    ticks: Sequence[Tick]
    now: float
    """The place of the present time, in percent of the width."""
    hidden: int
    """The number of jobs that are left out because there are too many."""
    without: int
    """The number of waiting jobs that have no reserved start yet."""


@dataclass(frozen=True, slots=True)
class _Times:
    begin: float
    end: float
    """Infinite: unknown."""
    is_reserved: bool


def gantt_of(snapshot: QueueSnapshot) -> Gantt:
    """Return the picture of a queue. Running jobs come first, then waiting jobs by their reserved starts."""
    now = snapshot.taken_at.timestamp()
    timed = [(times, job) for job in snapshot.jobs if (times := _times_of(job, now)) is not None]
    timed.sort(key=lambda each: (each[0].is_reserved, each[0].begin))
    ends = [times.end if times.end < math.inf else times.begin + _WITHOUT_LENGTH for times, _ in timed]
    ahead = min(_LONGEST, max([_SHORTEST, *(1.05 * (end - now) for end in ends[:MOST_LANES])]))
    age = max((now - times.begin for times, _ in timed[:MOST_LANES]), default=0.0)
    scale = TimeScale(now - min(max(age, _LEAST_PAST * ahead), _MOST_PAST * ahead), now + ahead)
    lanes = [_lane(times, job, scale, now) for times, job in timed[:MOST_LANES]]
    waiting = sum(job.allocation is None for job in snapshot.jobs) + snapshot.omitted
    return Gantt(
        lanes=lanes,
        ticks=scale.ticks(now, "now"),
        now=scale.place(now),
        hidden=len(timed) - len(lanes) + snapshot.omitted_running,
        without=waiting - sum(times.is_reserved for times, _ in timed),
    )


def _times_of(job: SeenJob, now: float) -> _Times | None:
    length = job.gang.expected.median if job.gang.expected is not None else math.inf
    if job.allocation is not None:
        begin = (job.admitted_at or job.submitted_at).timestamp()
        return _Times(begin, begin + length if begin + length > now else math.inf, is_reserved=False)
    if job.promise is None or not math.isfinite(job.promise.at):
        return None
    begin = max(job.promise.at, now)
    return _Times(begin, begin + length, is_reserved=True)


def _lane(times: _Times, job: SeenJob, scale: TimeScale, now: float) -> Lane:
    held = held_parts(job.gang, job.allocation) if job.allocation is not None else job.gang.parts
    return Lane(
        job=job,
        instances=total(held)["instances"],
        bars=list(_bars(times, scale, now)),
        text=_words(times, now),
        at=datetime.fromtimestamp(times.begin, UTC),
    )


def _bars(times: _Times, scale: TimeScale, now: float) -> Iterator[Bar]:
    def bar(begin: float, end: float, kind: str) -> Bar:
        left = scale.place(begin)
        return Bar(left, max(0.4, scale.place(end) - left), kind)

    until = min(times.end, scale.last)
    rest = "unknown" if times.end == math.inf else "reserved" if times.is_reserved else "expected"
    if not times.is_reserved:
        yield bar(times.begin, now, "running")
    yield bar(max(times.begin, now), until, rest)


def _words(times: _Times, now: float) -> str:
    begin = (
        f"starts in {duration(times.begin - now)}"
        if times.is_reserved
        else f"runs for {duration(now - times.begin)}"
    )
    if times.end == math.inf:
        return f"{begin}, its end is not known"
    end = duration(times.end - (times.begin if times.is_reserved else now))
    return f"{begin}, and then for about {end}" if times.is_reserved else f"{begin}, and about {end} more"

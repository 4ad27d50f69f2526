"""The smallest pieces of text: safe strings, times, numbers, and names of the API.

All text from the service passes through `printable`: users choose names, and a name must not move another
user's cursor, hide text or fake a line.
"""

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from training_service._generated.training_service_pb2 import (
    Progress,
    RankPhase,
    RankStatus,
    TrainingStatus,
)

_METRICS_SHOWN = 8
_RANKS_SHOWN = 8


def printable(text: str) -> str:
    r"""Escape all characters that are not printable: for example, ESC becomes \x1b.

    This includes line breaks and bidirectional overrides.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> list[str]:
    """Split text into printable lines; tabs become spaces."""
    return [printable(line.expandtabs()) for line in text.splitlines()]


def status_word(status: TrainingStatus.ValueType) -> str:
    """Return the API's name of a status, or its number if this client does not know it."""
    known = TrainingStatus.DESCRIPTOR.values_by_number.get(status)
    return known.name if known else f"status {status}"


def phase_word(phase: RankPhase.ValueType) -> str:
    """Return the name of a rank's phase, such as `running`."""
    known = RankPhase.DESCRIPTOR.values_by_number.get(phase)
    return known.name.removeprefix("RANK_PHASE_").lower() if known else f"phase {phase}"


def moment(timestamp: Timestamp) -> str:
    """Format a time in UTC for programs, such as 2025-11-21T12:00:00Z."""
    return timestamp.ToDatetime(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def local_moment(timestamp: Timestamp) -> str:
    """Format a time for people in the local time zone, such as 2025-11-21 13:00:00."""
    return timestamp.ToDatetime(UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def seconds_between(start: Timestamp, end: datetime | Timestamp) -> float:
    """Return the seconds between two times; at least 0, because the clocks of machines may differ."""
    until = end.ToDatetime(UTC) if isinstance(end, Timestamp) else end
    return max(0.0, (until - start.ToDatetime(UTC)).total_seconds())


def distance(at: Timestamp, now: datetime) -> str:
    """Format a time relative to now, such as "5s ago" or "in 2m 05s"."""
    if at.ToDatetime(UTC) > now:
        return f"in {duration((at.ToDatetime(UTC) - now).total_seconds())}"
    return f"{duration(seconds_between(at, now))} ago"


def duration(seconds: float) -> str:
    """Format a duration in its two largest units: 45s, 2m 05s, 3h 12m, 2d 04h."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d {hour:02}h"
    if hours:
        return f"{hours}h {minute:02}m"
    if minutes:
        return f"{minutes}m {second:02}s"
    return f"{second}s"


def size(count_of_bytes: int) -> str:
    """Format bytes in the largest unit that fits: 512 B, 1.5 KB, 2.0 GB; "" for 0."""
    amount, units = float(count_of_bytes), ("B", "KB", "MB", "GB", "TB")
    for unit in units:
        if amount < 1000 or unit == units[-1]:
            break
        amount /= 1000
    return "" if not count_of_bytes else f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"


def count(number: int, noun: str) -> str:
    """Format a number with its noun: 1 job, 3 jobs."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def assignments(parameters: Mapping[str, str]) -> str:
    """Format parameters: EPOCHS=5 LR=0.1."""
    return " ".join(f"{printable(key)}={printable(value)}" for key, value in sorted(parameters.items()))


def tags(found: Iterable[str]) -> str:
    """Format tags: best,team=vision."""
    return ",".join(map(printable, found))


def queue_position(jobs_before: int) -> str:
    """Format a job's position in the queue."""
    return "next in the queue" if jobs_before == 0 else f"{count(jobs_before, 'job')} ahead"


def waits_to_retry(attempt: int) -> str:
    """Say that this attempt of a job has failed, and that the job waits for the next one."""
    return f"attempt {attempt} failed, waiting to retry"


def steps(progress: Progress) -> str:
    """Format the steps and epochs done: step 45/100, epoch 2/5."""
    parts = [
        f"{noun} {done}/{total}" if total else f"{noun} {done}"
        for noun, done, total in (
            ("step", progress.step, progress.total_steps),
            ("epoch", progress.epoch, progress.total_epochs),
        )
        if done or total
    ]
    return ", ".join(parts)


def pace(progress: Progress, *, with_estimate: bool = True) -> str:
    """Format the speed and, if `with_estimate`, the remaining time: 12.5 steps/s, 2m 05s left."""
    if not progress.steps_per_second:
        return ""
    speed = f"{progress.steps_per_second:.3g} steps/s"
    if not with_estimate or not progress.HasField("seconds_left"):
        return speed
    return f"{speed}, {duration(progress.seconds_left)} left"


def metrics(progress: Progress) -> str:
    """Format the first metrics in the order of their names, such as "accuracy 0.88, loss 0.3121"."""
    shown = [f"{printable(name)} {number(value)}" for name, value in sorted(progress.metrics.items())]
    return ", ".join(_shortened(shown, _METRICS_SHOWN))


def nonfinite(progress: Progress) -> str:
    """Format the metrics that are or were not finite: loss is NaN since step 5."""
    shown = []
    for first in progress.nonfinite:
        goes_on = not math.isfinite(progress.metrics.get(first.metric, math.nan))
        rank = f" (rank {first.rank})" if first.HasField("rank") and first.rank else ""
        value = number(first.value)
        when = f"is {value} since step {first.step}" if goes_on else f"was {value} at step {first.step}"
        shown.append(f"{printable(first.metric)} {when}{rank}")
    return ", ".join(_shortened(shown, _METRICS_SHOWN))


def number(value: float) -> str:
    """Format a number: 0.3121, NaN, infinity or -infinity."""
    if math.isfinite(value):
        return f"{value:.4g}"
    return "NaN" if math.isnan(value) else "infinity" if value > 0 else "-infinity"


def fraction_done(progress: Progress) -> float | None:
    """Return the share of the training that is done (0 to 1), by steps or epochs; None without a total."""
    for done, total in (
        (progress.step, progress.total_steps),
        (progress.epoch, progress.total_epochs),
    ):
        if total > 0:
            return min(1.0, max(0.0, done / total))
    return None


def ranks(statuses: Iterable[RankStatus]) -> str:
    """Format the phases of ranks: master running, worker 1 failed (exit code 137).

    For a large group, give the number of ranks in each phase, and name only the failed ones.
    """
    group = list(statuses)
    if len(group) <= _RANKS_SHOWN:
        return ", ".join(map(_rank, group))
    phases = [phase_word(rank.phase) for rank in group]
    counts = [f"{phases.count(phase)} {phase}" for phase in dict.fromkeys(phases)]
    if restarts := sum(rank.restarts for rank in group):
        counts.append(f"restarted {_times(restarts)}")
    failed = [_rank(rank) for rank in group if rank.phase == RankPhase.RANK_PHASE_FAILED]
    return "; ".join([", ".join(counts), *_shortened(failed, _RANKS_SHOWN)])


def _rank(rank: RankStatus) -> str:
    name = printable(rank.role) if rank.rank == 0 else f"{printable(rank.role)} {rank.rank}"
    notes = [f"restarted {_times(rank.restarts)}"] if rank.restarts else []
    if rank.pace.HasField("step") and rank.phase == RankPhase.RANK_PHASE_RUNNING:
        notes.append(f"step {rank.pace.step}")
        notes += [printable(rank.pace.phase)] if rank.pace.phase != "training" else []
    if rank.note:
        notes.append(printable(rank.note))
    elif rank.exit_code:
        notes.append(f"exit code {rank.exit_code}")
    return f"{name} {phase_word(rank.phase)}" + (f" ({'; '.join(notes)})" if notes else "")


def slow_ranks(statuses: Iterable[RankStatus]) -> str:
    """Format the slow ranks, such as "rank 2 works 1.3 times as long on a step as the median one, since
    2025-11-21 13:00:00".
    """
    slow = [
        f"rank {rank.rank} works {rank.pace.slowness:.1f} times as long on a step as the median one, since "
        + local_moment(rank.pace.slow_since)
        for rank in statuses
        if rank.pace.HasField("slow_since")
    ]
    return "; ".join(_shortened(slow, _RANKS_SHOWN))


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _shortened(items: list[str], limit: int) -> list[str]:
    return items if len(items) <= limit else [*items[:limit], f"{len(items) - limit} more"]

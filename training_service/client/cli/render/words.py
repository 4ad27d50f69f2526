"""The smallest pieces of text: safe strings, times, numbers, and the wire's words.

Whatever comes from the service passes `printable` on its way to a table or a line: names are chosen
by users, and one user's name must not move another's cursor, hide text or fake a line.
"""

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
    r"""One line of text with nothing in it that a terminal would obey: ESC becomes \x1b, and so on.

    Line breaks, bidirectional overrides and characters without a picture are escaped as well.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> list[str]:
    """Several lines of text, each made printable; tabs become spaces."""
    return [printable(line.expandtabs()) for line in text.splitlines()]


def status_word(status: TrainingStatus.ValueType) -> str:
    """The wire's word for a status; its number when the service is newer than this client."""
    known = TrainingStatus.DESCRIPTOR.values_by_number.get(status)
    return known.name if known else f"status {status}"


def phase_word(phase: RankPhase.ValueType) -> str:
    """The word for a rank's phase, as in `running`."""
    known = RankPhase.DESCRIPTOR.values_by_number.get(phase)
    return known.name.removeprefix("RANK_PHASE_").lower() if known else f"phase {phase}"


def moment(timestamp: Timestamp) -> str:
    """A time as programs sort it: 2025-11-21T12:00:00Z."""
    return timestamp.ToDatetime(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def local_moment(timestamp: Timestamp) -> str:
    """A time as people read it, on the clock of this machine: 2025-11-21 13:00:00."""
    return timestamp.ToDatetime(UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def seconds_between(start: Timestamp, end: datetime | Timestamp) -> float:
    """Seconds from one time to another; 0 when the clocks of two machines disagree about the order."""
    until = end.ToDatetime(UTC) if isinstance(end, Timestamp) else end
    return max(0.0, (until - start.ToDatetime(UTC)).total_seconds())


def distance(at: Timestamp, now: datetime) -> str:
    """How far away a time is, as in 5s ago or in 2m 05s."""
    if at.ToDatetime(UTC) > now:
        return f"in {duration((at.ToDatetime(UTC) - now).total_seconds())}"
    return f"{duration(seconds_between(at, now))} ago"


def duration(seconds: float) -> str:
    """A span of time in its two largest units: 45s, 2m 05s, 3h 12m, 2d 04h."""
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
    """Bytes in the largest unit that fits: 512 B, 1.5 KB, 2.0 GB; empty for none."""
    amount, units = float(count_of_bytes), ("B", "KB", "MB", "GB", "TB")
    for unit in units:
        if amount < 1000 or unit == units[-1]:
            break
        amount /= 1000
    return "" if not count_of_bytes else f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"


def count(number: int, noun: str) -> str:
    """A number with its noun: 1 job, 3 jobs."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def assignments(parameters: Mapping[str, str]) -> str:
    """Parameters as one would type them: EPOCHS=5 LR=0.1."""
    return " ".join(f"{printable(key)}={printable(value)}" for key, value in sorted(parameters.items()))


def queue_position(jobs_before: int) -> str:
    """How long the queue before a job is, in words."""
    return "next in the queue" if jobs_before == 0 else f"{count(jobs_before, 'job')} before it"


def steps(progress: Progress) -> str:
    """How far training has come: step 45/100, epoch 2/5."""
    parts = [
        f"{noun} {done}/{total}" if total else f"{noun} {done}"
        for noun, done, total in (
            ("step", progress.step, progress.total_steps),
            ("epoch", progress.epoch, progress.total_epochs),
        )
        if done or total
    ]
    return ", ".join(parts)


def pace(progress: Progress) -> str:
    """How fast it goes, and how long it will take: 12.5 steps/s, 2m 05s left."""
    if not progress.steps_per_second:
        return ""
    speed = f"{progress.steps_per_second:.3g} steps/s"
    if not progress.HasField("seconds_left"):
        return speed
    return f"{speed}, {duration(progress.seconds_left)} left"


def metrics(progress: Progress) -> str:
    """The metrics by name: accuracy 0.88, loss 0.3121. The first few when there are many."""
    shown = [f"{printable(name)} {value:.4g}" for name, value in sorted(progress.metrics.items())]
    return ", ".join(_shortened(shown, _METRICS_SHOWN))


def fraction_done(progress: Progress) -> float | None:
    """How much of the training is done, 0 to 1, by steps or else epochs; None when no total is known."""
    for done, total in (
        (progress.step, progress.total_steps),
        (progress.epoch, progress.total_epochs),
    ):
        if total > 0:
            return min(1.0, max(0.0, done / total))
    return None


def ranks(statuses: Iterable[RankStatus]) -> str:
    """What each process does: master running, worker 1 failed (exit code 137).

    A large group is counted by phase, and only the processes that failed are named.
    """
    group = list(statuses)
    if len(group) <= _RANKS_SHOWN:
        return ", ".join(map(_rank, group))
    phases = [phase_word(rank.phase) for rank in group]
    counts = [f"{phases.count(phase)} {phase}" for phase in dict.fromkeys(phases)]
    if restarts := sum(rank.restarts for rank in group):
        counts.append(f"started anew {_times(restarts)}")
    failed = [_rank(rank) for rank in group if rank.phase == RankPhase.RANK_PHASE_FAILED]
    return "; ".join([", ".join(counts), *_shortened(failed, _RANKS_SHOWN)])


def _rank(rank: RankStatus) -> str:
    who = printable(rank.role) if rank.rank == 0 else f"{printable(rank.role)} {rank.rank}"
    why = [f"exit code {rank.exit_code}"] if rank.exit_code else []
    why = [printable(rank.note)] if rank.note else why
    again = [f"started anew {_times(rank.restarts)}"] if rank.restarts else []
    told = f" ({'; '.join([*again, *why])})" if again or why else ""
    return f"{who} {phase_word(rank.phase)}{told}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _shortened(items: list[str], limit: int) -> list[str]:
    return items if len(items) <= limit else [*items[:limit], f"{len(items) - limit} more"]

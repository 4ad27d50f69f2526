"""What queues and projects held over time, as areas with their quotas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from job_tracker.scheduling.use_history import SLOT_SECONDS, Point
from training_service.web.scales import Tick, TimeScale

_HEIGHT: Final = 100.0


@dataclass(frozen=True, slots=True)
class UseChart:
    """The picture of one queue or project. Paths are in a square of 100, from the top left."""

    name: str
    held: str
    """The path of the area that it held."""
    quota: str
    """The path of what is guaranteed to it; empty if it has no quota."""
    most_held: float
    """0 to 1."""
    last_quota: float | None
    most_waiting: int

    @property
    def text(self) -> str:
        """The picture in words."""
        quota = f", its quota is {100 * self.last_quota:.0f} %" if self.last_quota is not None else ""
        return f"{self.name} held at most {100 * self.most_held:.0f} % of the capacity{quota}"


def use_charts(
    history: Mapping[str, Sequence[Point]], now: float, seconds: float
) -> tuple[Sequence[UseChart], Sequence[Tick]]:
    """Return the pictures of those that have a history, and the marks of their common axis."""
    scale = TimeScale(now - seconds, now)
    charts = [
        UseChart(
            name=name,
            held=_area(points, scale),
            quota=_steps(points, scale),
            most_held=max(point.held for point in points),
            last_quota=points[-1].quota,
            most_waiting=max(point.waiting for point in points),
        )
        for name, points in history.items()
        if points
    ]
    return charts, scale.ticks(now, "now")


def _area(points: Sequence[Point], scale: TimeScale) -> str:
    """Return a path that falls to zero where nothing is known: then the queue held nothing."""
    parts = []
    for point in points:
        left, right = scale.place(point.at), scale.place(point.at + SLOT_SECONDS)
        top = _y(point.held)
        parts.append(f"M{left:.2f} {_HEIGHT:.0f}V{top}H{max(right, left + 0.2):.2f}V{_HEIGHT:.0f}z")
    return "".join(parts)


def _steps(points: Sequence[Point], scale: TimeScale) -> str:
    known = [(point.at, point.quota) for point in points if point.quota is not None]
    if not known:
        return ""
    return (
        f"M0 {_y(known[0][1])}"
        + "".join(f"H{scale.place(at):.2f}V{_y(quota)}" for at, quota in known)
        + f"H{_HEIGHT:.0f}"
    )


def _y(share: float) -> str:
    return f"{_HEIGHT * (1 - min(1.0, share)):.1f}"

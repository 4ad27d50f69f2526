"""The use of queues and projects over time, as areas with their quotas."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from job_tracker.scheduling.use_history import Point
from training_service.web.scales import Tick, TimeScale

_HEIGHT: Final = 100.0


@dataclass(frozen=True, slots=True)
class UseChart:
    """The picture of one queue or project. The coordinates of paths are from 0 to 100, from the top left."""

    name: str
    held: str
    """The SVG path of the area: the part of the capacity that was held."""
    quota: str
    """The SVG path of the guaranteed part of the capacity. Empty: there is no quota."""
    most_held: float
    """The largest held part of the capacity, from 0 to 1."""
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
    """Return the pictures of the queues or projects in `history`, and the ticks of their common time axis."""
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
    """Return the path of the area. It falls to zero at times without points, since nothing was held then."""
    parts, until = list[str](), -1.0
    ground = f"V{_HEIGHT:.0f}z"
    for begin, end, top in _runs((point.at, point.at + point.seconds, _y(point.held)) for point in points):
        left, right = scale.place(begin), scale.place(end)
        if begin != until:
            parts.append(f"{ground if parts else ''}M{left:.2f} {_HEIGHT:.0f}")
        parts.append(f"V{top}H{max(right, left + 0.2):.2f}")
        until = end
    return "".join(parts) + ground if parts else ""


def _runs(parts: Iterable[tuple[float, float, str]]) -> Iterator[tuple[float, float, str]]:
    """Yield the parts (begin, end, height); adjacent parts of the same height become one, to shorten the
    path.
    """
    begin = end = -1.0
    height = ""
    for first, last, its in parts:
        if first == end and its == height:
            end = last
            continue
        if height:
            yield begin, end, height
        begin, end, height = first, last, its
    if height:
        yield begin, end, height


def _steps(points: Sequence[Point], scale: TimeScale) -> str:
    known = [(point.at, _y(point.quota)) for point in points if point.quota is not None]
    if not known:
        return ""
    changes = [(at, height) for (_, before), (at, height) in pairwise(known) if height != before]
    return (
        f"M0 {known[0][1]}"
        + "".join(f"H{scale.place(at):.2f}V{height}" for at, height in changes)
        + f"H{_HEIGHT:.0f}"
    )


def _y(share: float) -> str:
    return f"{_HEIGHT * (1 - min(1.0, share)):.1f}"

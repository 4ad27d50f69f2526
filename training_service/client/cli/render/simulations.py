"""Shows simulations side by side: tables, and plots of utilisation, waiting and fairness."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from job_tracker.scheduling.simulation.metrics import Waits
from job_tracker.scheduling.simulation.scenario import Result
from training_service.client.cli.render import plots, words

_MOST_DRAWN = 10
"""More queues than this are too many for one plot."""
_PLOTS = ("utilisation", "waiting", "fairness", "shares")
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


@dataclass(frozen=True)
class Shown:
    """A simulation."""

    result: Result

    @property
    def mean_fairness(self) -> float:
        """Jain's index on average over time. 1 if there is only one queue."""
        every = self.result.over_time
        return sum(each.index for each in every) / len(every) if every else 1.0

    def as_json(self) -> str:
        """Return one line of JSON."""
        summary = self.result.summary
        return json.dumps(
            {
                "scenario": self.result.name,
                "instances": self.result.instances,
                "utilisation": summary.utilisation,
                "end_s": summary.end,
                "waiting_s": _waits(summary.waits),
                "waiting_by_size_s": {str(size): _waits(each) for size, each in summary.by_size.items()},
                "waiting_by_queue_s": {queue: _waits(each) for queue, each in summary.by_queue.items()},
                "promised": summary.promised,
                "promises_kept": summary.kept,
                "not_started": summary.unstarted,
                "fairness": self.mean_fairness,
                "over_time": [asdict(each) for each in self.result.over_time],
            }
        )


def _waits(waits: Waits) -> dict[str, Any]:
    return {name: None if value != value else value for name, value in asdict(waits).items()}


def line(shown: Shown) -> str:
    """Return the name, utilisation, and mean, P50 and P90 of waiting in seconds, separated by tabs."""
    summary = shown.result.summary
    waits = summary.waits
    numbers = (summary.utilisation, waits.mean, waits.median, waits.high)
    return "\t".join((words.printable(shown.result.name), *(f"{number:.6g}" for number in numbers)))


def tables(every: Iterable[Shown]) -> RenderableType:
    """Draw a column for each simulation."""
    shown = list(every)
    parts: list[RenderableType] = [_table("", shown, _rows(shown))]
    queues = sorted({queue for each in shown for queue in each.result.summary.by_queue})
    sizes = sorted({size for each in shown for size in each.result.summary.by_size})
    parts.append(
        _table(
            "mean waiting by size",
            shown,
            [(words.count(size, "instance"), [_of(each, size=size) for each in shown]) for size in sizes],
        )
    )
    if len(queues) > 1:
        rows = [(words.printable(queue), [_of(each, queue=queue) for each in shown]) for queue in queues]
        parts.append(_table("mean waiting by queue", shown, rows))
    for each in shown:
        if count := each.result.summary.unstarted:
            reason = next((record.refused for record in each.result.records if record.refused), "")
            note = f"{each.result.name}: {words.count(count, 'job')} never started. {reason}"
            parts.append(Text(words.printable(note)))
    return Group(*parts)


def _rows(shown: Sequence[Shown]) -> list[tuple[str, list[str]]]:
    rows = [
        ("instances", [str(each.result.instances) for each in shown]),
        ("utilisation", [f"{each.result.summary.utilisation:.1%}" for each in shown]),
        ("mean waiting", [duration(each.result.summary.waits.mean) for each in shown]),
        ("P50", [duration(each.result.summary.waits.median) for each in shown]),
        ("P90", [duration(each.result.summary.waits.high) for each in shown]),
        ("ends after", [duration(each.result.summary.end) for each in shown]),
        ("first promise kept", [_kept(each) for each in shown]),
    ]
    if any(len(each.result.summary.by_queue) > 1 for each in shown):
        rows.append(("fairness", [f"{each.mean_fairness:.3f}" for each in shown]))
    return rows


def _kept(shown: Shown) -> str:
    summary = shown.result.summary
    return f"{summary.kept} of {summary.promised}" if summary.promised else "no promises"


def _of(shown: Shown, *, size: int | None = None, queue: str | None = None) -> str:
    summary = shown.result.summary
    waits = summary.by_size.get(size) if size is not None else summary.by_queue.get(queue or "")
    return "" if waits is None else duration(waits.mean)


def _table(title: str, shown: Sequence[Shown], rows: Sequence[tuple[str, Sequence[str]]]) -> Table:
    table = Table(box=None, header_style="bold")
    table.add_column(title)
    for each in shown:
        table.add_column(words.printable(each.result.name), justify="right")
    for head, cells in rows:
        table.add_row(head, *cells)
    return table


def duration(seconds: float) -> str:
    """Format seconds in the largest unit that gives 1 or more."""
    if math.isnan(seconds):
        return ""
    unit, name = next(((unit, name) for unit, name in _UNITS if seconds >= unit), (1.0, "s"))
    return f"{seconds / unit:.3g} {name}"


def save(shown: Sequence[Shown], folder: Path) -> list[Path]:
    """Write the plots to a folder, and return their files. Raises BadParameter."""
    paths = [folder / f"{name}.svg" for name in _PLOTS]
    plots.check(paths[0], "--plot")
    drawings = (_draw_utilisation, _draw_waiting, _draw_fairness)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, draw in zip(paths, drawings, strict=False):
            with plots.picture(path, 1) as axes:
                draw(axes[0], shown)
                axes[0].legend()
        with plots.picture(paths[-1], len(shown)) as axes:
            for axis, each in zip(axes, shown, strict=True):
                _draw_shares(axis, each)
    except OSError as error:
        raise typer.BadParameter(
            f"cannot write to '{folder}': {error.strerror}", param_hint="--plot"
        ) from error
    return paths


def _draw_utilisation(axis: Any, every: Sequence[Shown]) -> None:
    for each in every:
        used = [sum(span.shares.values()) for span in each.result.over_time]
        axis.plot(_days(each), used, label=plots.plain(each.result.name))
    axis.set_ylabel("utilisation")
    axis.set_xlabel("days")
    axis.set_ylim(0, 1.05)


def _draw_waiting(axis: Any, every: Sequence[Shown]) -> None:
    """Draw a group of bars for each queue: the mean, with a line up to the P90."""
    queues = sorted({queue for each in every for queue in each.result.summary.by_queue})[:_MOST_DRAWN]
    width = 0.8 / len(every)
    for number, each in enumerate(every):
        waits = [each.result.summary.by_queue.get(queue, Waits.of(())) for queue in queues]
        places = [place + number * width for place in range(len(queues))]
        bars = axis.bar(
            places, [wait.mean / 3600 for wait in waits], width, label=plots.plain(each.result.name)
        )
        color = bars.patches[0].get_facecolor()
        for place, wait in zip(places, waits, strict=True):
            axis.plot([place, place], [0, wait.high / 3600], color=color, marker="_")
    axis.set_xticks([place + 0.4 - width / 2 for place in range(len(queues))])
    axis.set_xticklabels([plots.plain(queue) for queue in queues])
    axis.set_ylabel("hours of waiting: mean, P90")


def _draw_fairness(axis: Any, every: Sequence[Shown]) -> None:
    for each in every:
        values = [span.index for span in each.result.over_time]
        axis.plot(_days(each), values, label=plots.plain(each.result.name))
    axis.set_ylabel("Jain's index of usage over weight")
    axis.set_xlabel("days")
    axis.set_ylim(0, 1.05)


def _draw_shares(axis: Any, shown: Shown) -> None:
    queues = sorted(shown.result.summary.by_queue)[:_MOST_DRAWN]
    shares = [[span.shares[queue] for span in shown.result.over_time] for queue in queues]
    axis.stackplot(_days(shown), *shares, labels=[plots.plain(queue) for queue in queues])
    axis.set_title(plots.plain(shown.result.name))
    axis.set_ylabel("share of the capacity")
    axis.set_xlabel("days")
    axis.set_ylim(0, 1.05)
    if queues:
        axis.legend(loc="lower left")


def _days(shown: Shown) -> list[float]:
    return [(span.begin + span.end) / 2 / 86_400 for span in shown.result.over_time]

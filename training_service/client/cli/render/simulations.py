"""Shows simulations side by side: tables, and plots of utilisation, waiting and fairness."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from job_tracker.scheduling.simulation.metrics import Summary, Waits
from job_tracker.scheduling.simulation.scenario import Result
from training_service.client.cli.render import plots, words

_MOST_LISTED = 30
"""The largest number of names in a table."""
_MOST_DRAWN = 10
"""The largest number of queues or projects in one plot."""
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


@dataclass(frozen=True)
class Shown:
    """A simulation, with the figures that are shown."""

    result: Result

    @property
    def mean_fairness(self) -> float:
        """The mean over time of Jain's index of fairness. It is 1 if there is only one queue."""
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
                "utilisation_by_resource": summary.by_resource,
                "end_s": summary.end,
                "waiting_s": _waits(summary.waits),
                "waiting_by_size_s": {str(size): _waits(each) for size, each in summary.by_size.items()},
                "waiting_by_queue_s": {queue: _waits(each) for queue, each in summary.by_queue.items()},
                "waiting_by_project_s": {name: _waits(each) for name, each in summary.by_project.items()},
                "promised": summary.promised,
                "promises_kept": summary.kept,
                "not_started": summary.unstarted,
                "stopped": summary.stopped,
                "resized": summary.resized,
                "evicted": summary.evicted,
                "lost_instance_s": summary.lost,
                "fairness": self.mean_fairness,
                "over_time": [asdict(each) for each in self.result.over_time],
            }
        )


def _waits(waits: Waits) -> dict[str, Any]:
    return {name: None if value != value else value for name, value in asdict(waits).items()}


def line(shown: Shown) -> str:
    """Return the name, the utilisation, and the mean, P50 and P90 of the waiting times in seconds.

    The values are separated by tabs.
    """
    summary = shown.result.summary
    waits = summary.waits
    numbers = (summary.utilisation, waits.mean, waits.median, waits.high)
    return "\t".join((words.printable(shown.result.name), *(f"{number:.6g}" for number in numbers)))


def tables(every: Iterable[Shown]) -> RenderableType:
    """Return tables with a column for each simulation."""
    shown = list(every)
    parts: list[RenderableType] = [_table("", shown, _rows(shown))]
    sizes = sorted({size for each in shown for size in each.result.summary.by_size})
    parts.append(
        _table(
            "mean waiting by size",
            shown,
            [
                (
                    words.count(size, "instance"),
                    [_mean(each.result.summary.by_size.get(size)) for each in shown],
                )
                for size in sizes
            ],
        )
    )
    for title, waits_of in (
        ("mean waiting by project", lambda each: each.by_project),
        ("mean waiting by queue", lambda each: each.by_queue),
    ):
        parts += _by_name(title, shown, waits_of)
    for each in shown:
        if count := each.result.summary.unstarted:
            note = f"{each.result.name}: {words.count(count, 'job')} never started. {_reason(each)}"
            parts.append(Text(words.printable(note)))
    return Group(*parts)


def _reason(shown: Shown) -> str:
    """Say why the largest unstarted job never started."""
    records = [each for each in shown.result.records if not each.is_done]
    largest = max(records, key=lambda each: each.job.instances)
    size, most = largest.job.instances, shown.result.instances
    if size > most:
        return f"The largest needs {words.count(size, 'instance')}, and the cluster has {most}."
    return largest.refused


def _rows(shown: Sequence[Shown]) -> list[tuple[str, list[str]]]:
    rows = [
        ("instances", [str(each.result.instances) for each in shown]),
        ("utilisation", [f"{each.result.summary.utilisation:.1%}" for each in shown]),
        *_by_resource(shown),
        ("mean waiting", [duration(each.result.summary.waits.mean) for each in shown]),
        ("P50", [duration(each.result.summary.waits.median) for each in shown]),
        ("P90", [duration(each.result.summary.waits.high) for each in shown]),
        ("mean, largest jobs", [duration(each.result.summary.largest.mean) for each in shown]),
        ("ends after", [duration(each.result.summary.end) for each in shown]),
        ("first promise kept", [_kept(each) for each in shown]),
    ]
    summaries = [each.result.summary for each in shown]
    if any(each.stopped or each.resized or each.evicted for each in summaries):
        rows += [
            ("stopped for others", [str(each.stopped) for each in summaries]),
            ("resized", [str(each.resized) for each in summaries]),
            ("evicted", [str(each.evicted) for each in summaries]),
            ("lost by stops", [f"{each.lost / 3600:.3g} instance h" for each in summaries]),
        ]
    if any(len(each.result.summary.by_queue) > 1 for each in shown):
        rows.append(("fairness", [f"{each.mean_fairness:.3f}" for each in shown]))
    return rows


def _by_resource(shown: Sequence[Shown]) -> Iterator[tuple[str, list[str]]]:
    """Yield the label and the cells of a row for each resource, if there are several resources."""
    names = list(dict.fromkeys(name for each in shown for name in each.result.summary.by_resource))
    for name in names if len(names) > 1 else ():
        shares = [each.result.summary.by_resource.get(name) for each in shown]
        yield f"  of {words.printable(name)}", ["" if share is None else f"{share:.1%}" for share in shares]


def _kept(shown: Shown) -> str:
    summary = shown.result.summary
    return f"{summary.kept} of {summary.promised}" if summary.promised else "no promises"


def _mean(waits: Waits | None) -> str:
    return "" if waits is None else duration(waits.mean)


def _by_name(
    title: str, shown: Sequence[Shown], waits_of: Callable[[Summary], Mapping[str, Waits]]
) -> Iterator[Table]:
    """Yield a table of waiting times with a row for each name in the results of `waits_of`.

    Yield nothing if there is at most one name.
    """
    names = sorted({name for each in shown for name in waits_of(each.result.summary)})
    if len(names) > 1:
        listed = names[:_MOST_LISTED]
        rows = [
            (words.printable(name), [_mean(waits_of(each.result.summary).get(name)) for each in shown])
            for name in listed
        ]
        if len(names) > len(listed):
            rows.append((f"… and {len(names) - len(listed)} more (--json)", ["" for _ in shown]))
        yield _table(title, shown, rows)


def _table(title: str, shown: Sequence[Shown], rows: Sequence[tuple[str, Sequence[str]]]) -> Table:
    table = Table(box=None, header_style="bold")
    table.add_column(title)
    for each in shown:
        table.add_column(words.printable(each.result.name), justify="right")
    for head, cells in rows:
        table.add_row(head, *cells)
    return table


def duration(seconds: float) -> str:
    """Format seconds in the largest unit that gives 1 or more; "" for NaN."""
    if math.isnan(seconds):
        return ""
    unit, name = next(((unit, name) for unit, name in _UNITS if seconds >= unit), (1.0, "s"))
    return f"{seconds / unit:.3g} {name}"


def check_picture(path: Path) -> None:
    """Raise BadParameter if a picture cannot be drawn to this file."""
    plots.check(path, "--plot")


def save(shown: Sequence[Shown], path: Path) -> None:
    """Draw utilisation, waiting, fairness and the queues' shares of the simulations to a file.

    Raises BadParameter if the file cannot be written.
    """
    with plots.picture(path, 3 + len(shown)) as axes:
        drawings = (_draw_utilisation, _draw_waiting, _draw_fairness)
        for axis, draw in zip(axes, drawings, strict=False):
            draw(axis, shown)
            axis.legend()
        for axis, each in zip(axes[3:], shown, strict=True):
            _draw_shares(axis, each)


def _draw_utilisation(axis: Any, every: Sequence[Shown]) -> None:
    for each in every:
        used = [span.utilisation for span in each.result.over_time]
        axis.plot(_hours(each), used, label=plots.plain(each.result.name))
    axis.set_ylabel("utilisation")
    axis.set_xlabel("hours")
    axis.set_ylim(0, 1.05)


def _draw_waiting(axis: Any, every: Sequence[Shown]) -> None:
    """Draw a group of bars for each project or, if there is only one project, for each queue.

    A bar is the mean waiting time; a line goes up to the P90.
    """
    has_projects = any(len(each.result.summary.by_project) > 1 for each in every)
    of_names = [
        each.result.summary.by_project if has_projects else each.result.summary.by_queue for each in every
    ]
    names = sorted({name for each in of_names for name in each})[:_MOST_DRAWN]
    width = 0.8 / len(every)
    for number, (each, of_name) in enumerate(zip(every, of_names, strict=True)):
        waits = [of_name.get(name, Waits.of(())) for name in names]
        places = [place + number * width for place in range(len(names))]
        bars = axis.bar(
            places, [wait.mean / 3600 for wait in waits], width, label=plots.plain(each.result.name)
        )
        color = bars.patches[0].get_facecolor()
        for place, wait in zip(places, waits, strict=True):
            axis.plot([place, place], [0, wait.high / 3600], color=color, marker="_")
    axis.set_xticks([place + 0.4 - width / 2 for place in range(len(names))])
    axis.set_xticklabels([plots.plain(name) for name in names])
    axis.set_ylabel(f"hours of waiting by {'project' if has_projects else 'queue'}: mean, P90")


def _draw_fairness(axis: Any, every: Sequence[Shown]) -> None:
    for each in every:
        values = [span.index for span in each.result.over_time]
        axis.plot(_hours(each), values, label=plots.plain(each.result.name))
    axis.set_ylabel("Jain's index of usage over weight")
    axis.set_xlabel("hours")
    axis.set_ylim(0, 1.05)


def _draw_shares(axis: Any, shown: Shown) -> None:
    queues = sorted({name for span in shown.result.over_time for name in span.shares})[:_MOST_DRAWN]
    shares = [[span.shares[queue] for span in shown.result.over_time] for queue in queues]
    axis.stackplot(_hours(shown), *shares, labels=[plots.plain(queue) for queue in queues])
    axis.set_title(plots.plain(shown.result.name))
    axis.set_ylabel("share of the capacity")
    axis.set_xlabel("hours")
    axis.set_ylim(0, 1.05)
    if queues:
        axis.legend(loc="lower left")


def _hours(shown: Shown) -> list[float]:
    return [(span.begin + span.end) / 2 / 3_600 for span in shown.result.over_time]

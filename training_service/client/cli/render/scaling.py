"""Shows a study of scaling: a table, the fitted law and the best number of instances of each series."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from training_service.client.cli.render import plots, words
from training_service.client.requests import as_text
from training_service.client.scaling.study import LOSS, SENT, Comparison, Series
from training_service.client.scaling.worth import Prices, by_efficiency, by_price, cost_of_example


@dataclass(frozen=True)
class Shown:
    """A series of a study's trials, and the prices by which its numbers of instances are judged."""

    series: Series
    prices: Prices
    comparison: Comparison | None = None

    @property
    def worth(self) -> dict[str, int]:
        """The number of instances worth using, by rule: "efficiency" and, if both prices are given, "price".

        Without a fitted law, the result is empty.
        """
        series, prices = self.series, self.prices
        if series.law is None:
            return {}
        found = {"efficiency": by_efficiency(series.rate, prices.least_efficiency, series.most)}
        if prices.instance_hour is not None and prices.hour_of_waiting is not None:
            amounts = (prices.instance_hour, prices.hour_of_waiting)
            found["price"] = by_price(series.rate, *amounts, series.most)
        return found

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each number of instances that was tried, with all known values."""
        return [self._row(instances) for instances in self.series.trials]

    def _row(self, n: int) -> dict[str, Any]:
        series, price = self.series, self.prices.instance_hour
        row: dict[str, Any] = {
            "instances": n,
            "job_id": series.trials[n].job,
            "state": series.trials[n].state,
        }
        if n not in series.rates:
            return row | {"reason": series.missing[n]}
        rate = series.rates[n]
        speed_up = series.speed_up(n)
        row |= {"examples_per_second": rate, "speed_up": speed_up, "efficiency": speed_up / n}
        row |= {"waiting": series.waiting.get(n)}
        beside = series.trials[n].beside
        row |= {"loss": beside.get(LOSS), "sent_bytes_a_step": beside.get(SENT)}
        row |= {"by_law": series.rate(n), "predicted_from_1_and_2": series.predicted(n)}
        return row | ({} if price is None else {"cost_of_example": cost_of_example(rate, n, price)})

    def as_json(self) -> str:
        """Return one line of JSON."""
        law = self.series.law
        return json.dumps(
            {
                "parameters": dict(self.series.parameters),
                "scaling": self.series.scaling,
                "points": self.rows,
                "law": law and {"name": law.name, **law.coefficients, "basis": law.basis},
                "worth": self.worth,
                "slower_than_fastest": self.comparison and self.comparison.behind,
            }
        )


def line(shown: Shown) -> str:
    """Return a line for each number of instances, with columns separated by tabs; then the `sentences`."""
    rows = ["\t".join((_title(shown.series), *_cells(row))) for row in shown.rows]
    return "\n".join((*rows, *sentences(shown)))


def tables(every: Any) -> RenderableType:
    """Return all series as a Rich object."""
    return Group(*(part for shown in every for part in _drawn(shown)))


def _drawn(shown: Shown) -> list[RenderableType]:
    table = Table(box=None, header_style="bold", title=_title(shown.series) or None, title_justify="left")
    for head in (
        "instances",
        "job",
        "examples/s",
        "speed-up",
        "efficiency",
        "waiting",
        "by law",
        "from 1 and 2",
        "cost",
        "loss",
        "sent a step",
    ):
        table.add_column(head, justify="right")
    for row in shown.rows:
        table.add_row(*_cells(row))
    return [table, *(Text(sentence) for sentence in sentences(shown))]


def sentences(shown: Shown) -> list[str]:
    """Return sentences on the missing points, the law that the points follow, and how many instances are
    worth using.
    """
    series, law = shown.series, shown.series.law
    found = [
        f"{words.count(n, 'instance')}: no point, {words.printable(why)}" for n, why in series.missing.items()
    ]
    if law is None:
        return [*found, "No job has reported a throughput, so no law was fitted."]
    if (against := shown.comparison) is not None:
        found.append(_against(against))
    terms = ", ".join(f"{name} {value:.3g}" for name, value in law.coefficients.items())
    found.append(f"{series.scaling} scaling, law: {law.name} ({terms}), {law.basis}.")
    if not series.explains:
        found.append(
            f"No law explains these points: this one is {law.worst:.0%} away from one of them, so what "
            "follows is a guess. Measure again with more steps, on machines that do nothing else."
        )
    beyond = 2 * max(series.rates)
    interval = series.interval(beyond)
    between = "" if interval is None else f" ({interval[0]:.4g} to {interval[1]:.4g} in 95 of 100 cases)"
    found.append(f"{beyond} instances would give {series.rate(beyond):.4g} examples/s{between}.")
    limit = f"of at most {series.most}"
    worth, least = shown.worth, shown.prices.least_efficiency
    verb = "is" if worth["efficiency"] == 1 else "are"
    found.append(
        f"{words.count(worth['efficiency'], 'instance')} {limit} {verb} worth it if each added one must add "
        f"{least:.0%} of the speed of one."
    )
    if "price" in worth:
        found.append(
            f"With {shown.prices.instance_hour:g} for an instance-hour and "
            f"{shown.prices.hour_of_waiting:g} for an hour of waiting, an example costs least on "
            f"{words.count(worth['price'], 'instance')} {limit}."
        )
    return found


def _against(comparison: Comparison) -> str:
    on = f"On {words.count(comparison.instances, 'instance')}"
    if not comparison.behind:
        return f"{on}, this is the fastest of {comparison.of} series."
    fastest = comparison.fastest
    rate = fastest.rates[comparison.instances]
    return f"{on}, {comparison.behind:.1%} slower than {_title(fastest)} with {rate:.4g} examples/s."


def save(every: Sequence[Shown], path: Path) -> None:
    """Plot the speed-up, the efficiency and the waiting share of all series into one image.

    Raises BadParameter if the image cannot be written.
    """
    with plots.picture(path, 2) as (speed_up, efficiency):
        most = max((max(shown.series.rates, default=1) for shown in every), default=1)
        speed_up.plot([1, most], [1, most], color="0.7", linestyle="--", label="perfect")
        for shown in every:
            _draw(shown.series, speed_up, efficiency)
        for axis, label in ((speed_up, "speed-up"), (efficiency, "efficiency and waiting")):
            axis.set_xlabel("instances")
            axis.set_ylabel(label)
            axis.legend()


def _draw(series: Series, speed_up: Any, efficiency: Any) -> None:
    if series.law is None:
        return
    label = plots.plain(_title(series)) or "measured"
    counts = sorted(series.rates)
    measured = [series.speed_up(n) for n in counts]
    points = speed_up.plot(counts, measured, "o", label=label)
    color = points[0].get_color()
    efficiency.plot(counts, [s / n for s, n in zip(measured, counts, strict=True)], "o", color=color)
    if waiting := series.waiting:
        efficiency.plot([*waiting], [*waiting.values()], "x:", color=color, label=f"{label}, waiting")
    smooth = range(1, 2 * counts[-1] + 1)
    law = [series.law.speed_up(n) for n in smooth]
    speed_up.plot(smooth, law, color=color, alpha=0.6, label=f"{series.law.name} law")
    efficiency.plot(smooth, [s / n for s, n in zip(law, smooth, strict=True)], color=color, label=label)


def _title(series: Series) -> str:
    return words.assignments({name: as_text(value) for name, value in series.parameters.items()})


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    job = "" if row["job_id"] is None else str(row["job_id"])
    if "examples_per_second" not in row:
        return str(row["instances"]), job, row["state"], *[""] * 8
    waiting, predicted, cost = row["waiting"], row["predicted_from_1_and_2"], row.get("cost_of_example")
    loss, sent = row["loss"], row["sent_bytes_a_step"]
    return (
        str(row["instances"]),
        job,
        f"{row['examples_per_second']:.4g}",
        f"{row['speed_up']:.2f}",
        f"{row['efficiency']:.0%}",
        "" if waiting is None else f"{waiting:.0%}",
        f"{row['by_law']:.4g}",
        "" if predicted is None else f"{predicted:.4g}",
        "" if cost is None else f"{cost:.3g}",
        "" if loss is None else f"{loss:.4g}",
        "" if sent is None else words.size(int(sent)),
    )

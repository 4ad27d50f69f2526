"""Plots of curves: text for a terminal (plotext) or an image (Matplotlib). Both libraries are extras."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from training_service.client.cli.render.words import printable
from training_service.client.curves import Curve

_COLUMNS = 2
FORMATS = (".png", ".svg", ".pdf")


def drawn(curves: Mapping[str, Sequence[Curve]], width: int) -> str:
    """Return one plot per metric as text of this width. Raises BadParameter if plotext is not installed."""
    plotext = _library("plotext")
    plots = []
    for metric, of_jobs in curves.items():
        plotext.clear_figure()
        plotext.plotsize(width, 18)
        plotext.title(printable(metric))
        plotext.xlabel("step")
        for curve in of_jobs:
            plotext.plot(list(curve.steps), list(curve.values), label=curve.label, marker="braille")
        plots.append(plotext.build())
    return "\n".join(plots)


def save(curves: Mapping[str, Sequence[Curve]], path: Path) -> None:
    """Write one plot per metric to one image; the suffix is the format. Raises BadParameter and OSError."""
    check(path, "--output")
    with picture(path, len(curves)) as axes:
        for axis, (metric, of_jobs) in zip(axes, curves.items(), strict=True):
            for curve in of_jobs:
                point = "o" if len(curve.steps) == 1 else ""  # a line through one point is invisible
                axis.plot(curve.steps, curve.values, marker=point, label=plain(curve.label))
            axis.set_title(plain(metric))
            axis.set_xlabel("step")
            axis.legend()


def check(path: Path, option: str) -> None:
    """Check that an image can be written. Raises BadParameter for another suffix or without Matplotlib."""
    if path.suffix.lower() not in FORMATS:
        raise typer.BadParameter(f"'{path}' must end in {', '.join(FORMATS)}", param_hint=option)
    _library("matplotlib").use("agg")


@contextmanager
def picture(path: Path, plots: int) -> Iterator[list[Any]]:
    """Yield `plots` axes of Matplotlib, and write them to the file at the end of the block."""
    pyplot: Any = import_module("matplotlib.pyplot")
    rows, columns = math.ceil(plots / _COLUMNS), min(_COLUMNS, plots)
    figure, grid = pyplot.subplots(
        rows, columns, figsize=(6 * columns, 3.5 * rows), squeeze=False, layout="constrained"
    )
    try:
        axes = list(grid.flat)
        for axis in axes[plots:]:
            axis.remove()
        for axis in axes[:plots]:
            axis.grid(alpha=0.3)
        yield axes[:plots]
        figure.savefig(path)
    finally:
        pyplot.close(figure)


def plain(text: str) -> str:
    """Escape text for Matplotlib, which parses text between dollars as a formula."""
    return printable(text).replace("$", r"\$")


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise typer.BadParameter(
            f"{name} is needed for plots; run: pip install 'training-service[plot]'"
        ) from error

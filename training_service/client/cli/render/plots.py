"""Plots of curves: text for a terminal (plotext) or an image (Matplotlib). Both libraries are optional."""

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
_SLOW_SHOWN = 3
_COLORS = ("blue", "green", "red", "cyan", "magenta", "yellow")
FORMATS = (".png", ".svg", ".pdf")


def drawn(curves: Mapping[str, Sequence[Curve]], width: int) -> str:
    """Return a plot for each metric as text of `width` columns. Raises BadParameter without plotext."""
    plotext = _library("plotext")
    plots = []
    for metric, of_jobs in curves.items():
        plotext.clear_figure()
        plotext.plotsize(width, 18)
        plotext.title(printable(metric))
        plotext.xlabel("step")
        low, high = _range(of_jobs)
        for number, curve in enumerate(of_jobs):
            style = {"label": curve.label, "color": _COLORS[number % len(_COLORS)]}
            for steps, values in curve.runs:
                plotext.plot(list(steps), list(values), marker="braille", **style)
                style.pop("label", None)  # so that all parts of a curve have one entry in the legend
            if bad := curve.nonfinite:
                heights = [high if value == math.inf else low for _, value in bad]
                style["label"] = " ".join(filter(None, (style.get("label"), _note(bad))))
                plotext.scatter([step for step, _ in bad], heights, marker="x", **style)
            for step, height, note in _slow_marks(curve, low):
                plotext.scatter([step], [height], marker="v", color=style["color"], label=note)
        plots.append(plotext.build())
    return "\n".join(plots)


def save(curves: Mapping[str, Sequence[Curve]], path: Path) -> None:
    """Write a plot for each metric to one image, in the format of the suffix.

    Raises BadParameter if the image cannot be written; see `check`.
    """
    check(path, "--output")
    with picture(path, len(curves)) as axes:
        for axis, (metric, of_jobs) in zip(axes, curves.items(), strict=True):
            low, high = _range(of_jobs)
            for curve in of_jobs:
                point = "o" if len(curve.steps) == 1 else ""  # a line through one point is invisible
                finite = [value if math.isfinite(value) else math.nan for value in curve.values]
                (line,) = axis.plot(curve.steps, finite, marker=point, label=plain(curve.label))
                if bad := curve.nonfinite:
                    heights = [high if value == math.inf else low for _, value in bad]
                    steps = [step for step, _ in bad]
                    axis.scatter(steps, heights, marker="x", color=line.get_color(), label=_note(bad))
                for step, height, note in _slow_marks(curve, low):
                    axis.scatter([step], [height], marker="v", color=line.get_color(), label=note)
            axis.set_title(plain(metric))
            axis.set_xlabel("step")
            axis.legend()


def _range(curves: Sequence[Curve]) -> tuple[float, float]:
    """Return the smallest and the largest finite value of the curves; 0 and 0 if there is none.

    These are the heights of the marks for values that are not finite: the largest for infinity, the smallest
    for NaN and -infinity.
    """
    finite = [value for curve in curves for value in curve.values if math.isfinite(value)]
    return min(finite, default=0.0), max(finite, default=0.0)


def _note(bad: Sequence[tuple[int, float]]) -> str:
    return f"NaN or infinite {'since' if len(bad) > 1 else 'at'} step {bad[0][0]}"


def _slow_marks(curve: Curve, low: float) -> Iterator[tuple[int, float, str]]:
    """Yield the step, the height and the text of a mark for each of the first _SLOW_SHOWN slow ranks.

    The last text also says how many more ranks are slow. `low` is the height of a mark at a point that is not
    finite.
    """
    for place, slow in curve.slow[:_SLOW_SHOWN]:
        step, value = curve.steps[place], curve.values[place]
        note = f"rank {slow.rank} takes {slow.factor:.1f} times as long, since step {step}"
        if slow is curve.slow[:_SLOW_SHOWN][-1][1] and (more := len(curve.slow) - _SLOW_SHOWN) > 0:
            note += f"; {more} more ranks are slow"
        yield step, value if math.isfinite(value) else low, note


def check(path: Path, option: str) -> None:
    """Check that an image can be written.

    Raises BadParameter for a suffix that is not in FORMATS, for a folder that does not exist, or without
    Matplotlib.
    """
    if path.suffix.lower() not in FORMATS:
        raise typer.BadParameter(f"'{path}' must end in {', '.join(FORMATS)}", param_hint=option)
    if not path.parent.is_dir():
        raise typer.BadParameter(
            f"cannot write '{path}': there is no folder '{path.parent}'", param_hint=option
        )
    _library("matplotlib").use("agg")


def write(figure: Any, path: Path) -> None:
    """Write a figure of Matplotlib to the file. Raises BadParameter if this is not possible."""
    try:
        figure.savefig(path)
    except OSError as error:
        raise typer.BadParameter(f"cannot write '{path}': {error.strerror}") from error


@contextmanager
def picture(path: Path, plots: int) -> Iterator[list[Any]]:
    """Yield `plots` axes of Matplotlib, and write them to the file at the end of the block.

    Raises BadParameter if the file cannot be written.
    """
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
        write(figure, path)
    finally:
        pyplot.close(figure)


def plain(text: str) -> str:
    """Return the text escaped for Matplotlib, which parses text between dollar signs as a formula."""
    return printable(text).replace("$", r"\$")


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise typer.BadParameter(
            f"{name} is needed for plots; run: pip install 'training-service[plot]'"
        ) from error

"""Pictures of timelines: text for a terminal, lines for a pipe, or an image (needs Matplotlib)."""

from importlib import import_module
from pathlib import Path
from typing import Any

from training_service.client.cli.render import plots
from training_service.client.cli.render.words import printable
from training_service.client.timelines import Box, Kind, Timeline

_FILLERS: dict[Kind, str] = {"forward": "─", "backward": "═"}
_COLORS: dict[Kind, tuple[str, str]] = {"forward": ("#4c72b0", "#a9c0e0"), "backward": ("#55a868", "#a9d8b4")}
"""The colours of each kind of pass, for even and for odd stages of a rank: in an interleaved pipeline, a
rank has several stages."""
_EACH_SECOND = ", every second stage"
_IDLE = "·"
_NARROWEST = 20
_LARGEST_HEIGHT = 40.0
"""The largest height of a picture, in inches."""
_WIDTH_OF_DIGIT = 0.008
"""The width of a digit, as a share of the picture's width."""
_MILLISECONDS = 1000.0
"""The number of milliseconds in a second."""


def summary(timeline: Timeline) -> str:
    """Return the measured idle share, the idle share by the formula, and the shape of the pipeline."""
    return f"{_idle(timeline)} ({_shape(timeline)})"


def _idle(timeline: Timeline) -> str:
    schedule, formula = printable(timeline.measured.schedule), timeline.measured.formula
    return f"{schedule}: idle {timeline.idle:.1%} measured, {formula:.1%} by formula"


def _shape(timeline: Timeline) -> str:
    measured = timeline.measured
    plural = "" if measured.micro_batches == 1 else "es"
    parts = [
        measured.formula_text,
        f"k = {measured.ranks} ranks",
        f"m = {measured.micro_batches} micro-batch{plural}",
    ]
    if measured.stages > measured.ranks:
        parts.insert(2, f"v = {measured.stages // measured.ranks} stages of each")
    return ", ".join(parts)


def drawn(timeline: Timeline, label: str, width: int) -> str:
    """Return the timeline as text: a row of `width` columns for each rank, and the meaning of the signs.

    If `width` is very small, rows are longer: they have at least _NARROWEST columns of signs.
    """
    idle = [f" idle {share:.1%}" for share in timeline.idle_of_ranks]
    heads = [f"rank {rank} " for rank in range(timeline.measured.ranks)]
    left, right = max(map(len, heads)), max(map(len, idle))
    columns = max(_NARROWEST, width - left - right)
    rows = [[_IDLE] * columns for _ in heads]
    for box in timeline.boxes:
        start, end = (round(at / timeline.end * columns) for at in (box.start, box.end))
        rows[box.rank][start:end] = _sign(box, end - start)
    return "\n".join(
        [
            label,
            *(
                f"{head:{left}}{''.join(row)}{share}"
                for head, row, share in zip(heads, rows, idle, strict=True)
            ),
            f"0{_FILLERS['forward'] * 2} forward pass of micro-batch 0, 0{_FILLERS['backward'] * 2} its "
            f"backward pass, {_IDLE} idle; {timeline.end * _MILLISECONDS:.1f} ms by CPU time",
            summary(timeline),
        ]
    )


def line(job: int, box: Box) -> str:
    """Return job, rank, kind, stage, micro-batch, and start and end in seconds, separated by tabs."""
    return "\t".join(
        map(str, (job, box.rank, box.kind, box.stage, box.micro_batch, f"{box.start:.6f}", f"{box.end:.6f}"))
    )


def save(timeline: Timeline, label: str, path: Path) -> None:
    """Write an image with a row for each rank, in the format of the suffix.

    Raises BadParameter if the image cannot be written; see `plots.check`.
    """
    plots.check(path, "--output")
    pyplot: Any = import_module("matplotlib.pyplot")
    ranks = timeline.measured.ranks
    shape = (9, min(_LARGEST_HEIGHT, 1.7 + 0.45 * ranks))
    with pyplot.rc_context({"svg.fonttype": "none"}):  # text takes less space than outlines
        figure, axis = pyplot.subplots(figsize=shape, layout="constrained")
        try:
            _draw(axis, timeline)
            axis.set_title(
                "\n".join(map(plots.plain, (label, _idle(timeline), _shape(timeline)))), fontsize=10
            )
            plots.write(figure, path)
        finally:
            pyplot.close(figure)


def _sign(box: Box, width: int) -> str:
    """Return the sign of a pass in `width` columns: its kind and, if there is room, its micro-batch."""
    number, filler = str(box.micro_batch), _FILLERS[box.kind]
    return number + filler * (width - len(number)) if len(number) < width else filler * width


def _draw(axis: Any, timeline: Timeline) -> None:
    ranks, whole = timeline.measured.ranks, timeline.end * _MILLISECONDS
    spans: dict[tuple[Kind, int], dict[int, list[tuple[float, float]]]] = {}
    for box in timeline.boxes:
        start, length = box.start * _MILLISECONDS, (box.end - box.start) * _MILLISECONDS
        of_color = spans.setdefault((box.kind, box.stage // ranks % 2), {})
        of_color.setdefault(box.rank, []).append((start, length))
        number = str(box.micro_batch)
        if length > _WIDTH_OF_DIGIT * len(number) * whole:
            text = axis.text(
                start + length / 2, box.rank, number, ha="center", va="center", fontsize=8, clip_on=True
            )
            text.set_in_layout(False)
    for (kind, odd), of_ranks in sorted(spans.items(), key=lambda item: (item[0][0] == "backward", item[0])):
        for index, (rank, boxes) in enumerate(of_ranks.items()):
            axis.broken_barh(
                boxes,
                (rank - 0.4, 0.8),
                facecolors=_COLORS[kind][odd],
                edgecolors="white",
                linewidth=0.5,
                label=f"{kind} pass{_EACH_SECOND * odd}" if index == 0 else None,
            )
    axis.set_xlim(0, whole)
    axis.set_ylim(ranks - 0.5, -0.5)
    axis.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
    axis.set_xlabel("CPU time, ms")
    axis.figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)

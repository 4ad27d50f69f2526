"""trainctl plot."""

import shutil
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from training_service._generated.training_service_pb2 import GetTrainingStatusResponse
from training_service.client.cli.commands import timeline as timelines
from training_service.client.cli.commands.arguments import Jobs
from training_service.client.cli.output import Form, remark
from training_service.client.cli.render import lines, plots, words
from training_service.client.cli.session import session_of
from training_service.client.curves import curves_by_metric, slow_ranks, smoothed


def plot(
    context: typer.Context,
    jobs: Jobs,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", metavar="NAME", help="Only this metric. Repeatable."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the plot to FILE (.png, .svg or .pdf)."),
    ] = None,
    smooth: Annotated[
        float,
        typer.Option(
            min=0, max=0.9999, metavar="WEIGHT", help="Smooth the curves: 0 not at all, 0.6 some, 0.95 much."
        ),
    ] = 0.0,
    timeline: Annotated[
        bool,
        typer.Option(
            "--timeline",
            help="Instead, draw the passes of a job's pipeline by their CPU time, with idle times.",
        ),
    ] = False,
) -> None:
    """Plot the metrics of jobs, with one curve per job.

    In a pipe, each point is one line: job id, metric, step and value, separated by tabs. With --timeline,
    each pass is one line: job id, rank, kind, stage, micro-batch, start and end in seconds.
    """
    session = session_of(context)
    if timeline:
        if metric or smooth or len(set(jobs)) > 1:
            raise typer.BadParameter(
                "it draws one job, without --metric and --smooth", param_hint="--timeline"
            )
        with session.client() as client:
            timelines.draw(session.output, client, jobs[0], _label(client.status(jobs[0])), output)
        return
    with session.client() as client:
        found, slow = {}, {}
        for job in dict.fromkeys(jobs):
            status = client.status(job)
            label = _label(status)
            found[label], slow[label] = list(client.metrics(job, metric or ())), slow_ranks(status)
    if smooth:
        found = {label: [smoothed(each, smooth) for each in series] for label, series in found.items()}
    if not any(found.values()):
        with session.client() as client:
            known = sorted({series.name for job in jobs for series in client.metrics(job, ())})
        remark(f"nothing to plot: the jobs have reported {', '.join(known) or 'no metric'}")
        raise typer.Exit(1)
    if output is not None:
        plots.save(curves_by_metric(found, slow), output)
        session.output.note(f"wrote {output}")
    elif session.output.form is Form.TERMINAL:
        width = shutil.get_terminal_size().columns
        session.output.pass_through(plots.drawn(curves_by_metric(found, slow), width) + "\n")
    else:
        for series in chain.from_iterable(found.values()):
            session.output.show(series, lines.series, lines.series)


def _label(status: GetTrainingStatusResponse) -> str:
    name = words.printable(status.metadata.name)
    return f"job {status.job_id} ({name})" if name else f"job {status.job_id}"

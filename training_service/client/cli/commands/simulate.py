"""trainctl simulate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from job_tracker.scheduling.simulation import trace, workload
from job_tracker.scheduling.simulation.policies import Knowledge, PolicyName
from job_tracker.scheduling.simulation.replay import Cluster
from job_tracker.scheduling.simulation.scenario import Changes, Scenario
from training_service.client.cli.commands.assignments import parsed
from training_service.client.cli.render import simulations
from training_service.client.cli.session import session_of

MOST_QUEUES = 100


def simulate(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="CSV (.csv or .csv.gz) with the columns submit_s, run_s, gpus."),
    ],
    capacity: Annotated[
        int,
        typer.Option("--capacity", "-c", min=1, max=trace.MOST_INSTANCES, help="Instances of the cluster."),
    ] = 8,
    load: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=100,
            help="Scale the times of submissions so that the work offered is this share of the capacity.",
        ),
    ] = None,
    policy: Annotated[
        list[PolicyName] | None, typer.Option("--policy", help="Repeatable, to compare policies.")
    ] = None,
    queues: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_QUEUES, help="Spread the jobs over queues q1, q2 … by a seeded hash."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of --queues.")] = 0,
    add: Annotated[
        list[str] | None,
        typer.Option(metavar="FLAVOR=N", help="What if there were N more instances? Repeatable."),
    ] = None,
    quota: Annotated[
        list[str] | None,
        typer.Option(metavar="QUEUE=N", help="What if N instances were guaranteed to QUEUE? Repeatable."),
    ] = None,
    durations: Annotated[
        Knowledge, typer.Option(help="What the policy knows of run times.")
    ] = Knowledge.EXACT,
    since: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="Only jobs submitted after this time of the trace."),
    ] = 0.0,
    longest: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=1, help="Cut run times at this.")
    ] = None,
    priorities: Annotated[
        bool, typer.Option("--priorities", help="Use the column priority, or qos, as priorities.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also write plots (.svg) to FOLDER.")
    ] = None,
) -> None:
    """Simulate how a cluster would run the jobs of a trace. It needs no service.

    With --add or --quota, the base is shown beside the what-if. In a pipe, each scenario is one line: its
    name, and utilisation, mean, P50 and P90 of waiting in seconds, separated by tabs. --json has all figures.
    """
    changes = Changes(_whole(add or (), "--add"), _whole(quota or (), "--quota"))
    cluster = Cluster.of(capacity)
    try:
        changes.applied(cluster)
        jobs = workload.prepared(trace.read(file), since=since, longest=longest, priorities=priorities)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    except OSError as error:
        raise typer.BadParameter(f"cannot read '{file}': {error.strerror}", param_hint="FILE") from error
    jobs = workload.queued(jobs, queues, seed) if queues is not None else jobs
    if unknown := sorted(set(changes.quota) - {job.queue for job in jobs}):
        names = ", ".join(sorted({job.queue for job in jobs})[:MOST_QUEUES])
        raise typer.BadParameter(f"no job is in queue '{unknown[0]}'; queues: {names}", param_hint="--quota")
    if load is not None:
        if not workload.offered(jobs, capacity):
            raise typer.BadParameter(
                "all jobs come at once, so there is no rate to scale", param_hint="--load"
            )
        jobs = workload.scaled(jobs, capacity, load)
    output = session_of(context).output
    chosen = list(dict.fromkeys(policy or [PolicyName.PLANNER]))
    results = [
        Scenario(name, jobs, cluster, durations, what_if).run()
        for name in chosen
        for what_if in ((Changes(), changes) if changes else (Changes(),))
    ]
    shown = [simulations.Shown(result) for result in results]
    output.show_all(shown, simulations.line, simulations.tables)
    if plot is not None:
        for path in simulations.save(shown, plot):
            output.note(f"wrote {path}")


def _whole(texts: Sequence[str], option: str) -> dict[str, int]:
    """Parse NAME=N. Raises BadParameter."""
    least = -trace.MOST_INSTANCES if option == "--add" else 0
    numbers = {}
    for name, text in parsed(list(texts), option).items():
        number = int(text) if text.lstrip("+-").isdecimal() and len(text) < 12 else None
        if number is None or not least <= number <= trace.MOST_INSTANCES:
            raise typer.BadParameter(
                f"{name} is '{text}'; it must be a whole number from {least} to {trace.MOST_INSTANCES}",
                param_hint=option,
            )
        numbers[name] = number
    return numbers

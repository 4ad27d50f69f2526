"""trainctl simulate."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from job_tracker.scheduling.simulation import trace, workload
from job_tracker.scheduling.simulation.cluster import Changes, Cluster
from job_tracker.scheduling.simulation.policies import Knowledge, PolicyName
from job_tracker.scheduling.simulation.scenario import NO_CHANGES, Result, Scenario
from job_tracker.scheduling.simulation.spot import Spot
from job_tracker.scheduling.simulation.trace import TraceJob
from training_service.client.cli.commands import what_ifs
from training_service.client.cli.commands.policy_options import duration
from training_service.client.cli.live_queue import LiveQueue, live_queue
from training_service.client.cli.render import simulations, words
from training_service.client.cli.session import Session, session_of

MOST_QUEUES = 100
_CAPACITY = 8
_OF_TRACES = ("queues", "since", "longest", "priorities")
_OF_SERVICES = ("assume", "coming")


@dataclass(frozen=True)
class _Work:
    """The input of a simulation."""

    jobs: Sequence[TraceJob]
    cluster: Cluster
    durations: Knowledge
    changes: Changes


def simulate(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="CSV (.csv or .csv.gz) with the columns submit_s, run_s, gpus. Without it: the queue of the "
            "service.",
        ),
    ] = None,
    capacity: Annotated[
        int | None,
        typer.Option(
            "--capacity",
            "-c",
            min=1,
            max=trace.MOST_INSTANCES,
            help=f"Instances of the cluster; by default {_CAPACITY}, or those of the service.",
        ),
    ] = None,
    load: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=100,
            help="The offered work, as a share of the capacity. For a trace, it scales the submission times; "
            "for the queue, it adds jobs like those in the queue, which come at random times.",
        ),
    ] = None,
    policy: Annotated[
        list[PolicyName] | None, typer.Option("--policy", help="Repeatable, to compare policies.")
    ] = None,
    queues: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_QUEUES, help="Spread the jobs over queues q1, q2 … by a seeded hash."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of --queues, --load and --spot.")] = 0,
    add: Annotated[
        list[str] | None,
        typer.Option(metavar="FLAVOR=N", help="What if there were N more instances? Repeatable."),
    ] = None,
    quota: Annotated[
        list[str] | None,
        typer.Option(
            metavar="QUEUE=N",
            help="What if N instances were guaranteed to QUEUE? QUEUE=FLAVOR/RESOURCE=N names another "
            "resource. Repeatable.",
        ),
    ] = None,
    preempt: Annotated[
        bool,
        typer.Option(
            "--preempt", help="What if waiting jobs stopped jobs of their queue with a lower priority?"
        ),
    ] = False,
    spot: Annotated[
        timedelta | None,
        typer.Option(
            parser=duration,
            metavar="TIME",
            help="What if each machine were taken away after TIME on average, and replaced at once?",
        ),
    ] = None,
    durations: Annotated[
        Knowledge | None,
        typer.Option(
            help="What the policy knows of run times. Default: exact for a trace, said for the queue."
        ),
    ] = None,
    since: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="Only jobs submitted after this time of the trace."),
    ] = 0.0,
    longest: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=1, help="Shorten longer run times to this.")
    ] = None,
    priorities: Annotated[
        bool, typer.Option("--priorities", help="Use the column priority, or qos, as priorities.")
    ] = False,
    assume: Annotated[
        timedelta | None,
        typer.Option(
            parser=duration, metavar="TIME", help="How long queued jobs of unknown length run; by default 1h."
        ),
    ] = None,
    coming: Annotated[
        timedelta | None,
        typer.Option(
            parser=duration,
            metavar="TIME",
            help="With --load: the time in which new jobs arrive; by default 1d.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw a picture (.svg, .png or .pdf).")
    ] = None,
) -> None:
    """Simulate how a cluster would run the jobs of a trace, or how the service will run its queued jobs.

    With --add, --quota, --preempt or --spot, the results with and without the change are shown side by side.
    A trace needs no service. Nothing is changed in the service. In a pipe, each scenario is one line: its
    name, the utilisation, and the mean, P50 and P90 of the waiting times in seconds, separated by tabs. With
    --json, all figures are printed.
    """
    session = session_of(context)
    _refuse_options(context, _OF_SERVICES if file is not None else _OF_TRACES, is_trace=file is not None)
    taken = Spot(spot.total_seconds(), seed) if spot is not None else None
    made = what_ifs.changes(add or (), quota or (), preempt, taken)
    if plot is not None:
        simulations.check_picture(plot)
    try:
        if file is not None:
            jobs = workload.prepared(trace.read(file), since=since, longest=longest, priorities=priorities)
            jobs = workload.queued(jobs, queues, seed) if queues is not None else jobs
            jobs = _scaled(jobs, capacity or _CAPACITY, load)
            cluster = Cluster.of(capacity or _CAPACITY).with_queues(sorted({job.queue for job in jobs}))
            work = _Work(jobs, cluster, durations or Knowledge.EXACT, made)
        else:
            assumed = assume or timedelta(hours=1)
            found = _read(session, assumed)
            made = what_ifs.resized(made, found.cluster, capacity) if capacity is not None else made
            work = _Work(
                [*found.jobs, *_further(found, load, coming or timedelta(days=1), seed)],
                found.cluster,
                durations or Knowledge.SAID,
                made,
            )
            _describe(session, found, assumed)
        results = _results(work, policy or [PolicyName.PLANNER])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    except OSError as error:
        raise typer.BadParameter(f"cannot read '{file}': {error.strerror}", param_hint="FILE") from error
    shown = [simulations.Shown(result) for result in results]
    session.output.show_all(shown, simulations.line, simulations.tables)
    if plot is not None:
        simulations.save(shown, plot)
        session.output.note(f"wrote {plot}")


def _results(work: _Work, policies: Sequence[PolicyName]) -> list[Result]:
    every = (NO_CHANGES, work.changes) if work.changes else (NO_CHANGES,)
    work.changes.applied(work.cluster)  # raises ValueError for wrong changes before a long simulation
    return [
        Scenario(name, work.jobs, work.cluster, work.durations, changes).run()
        for name in dict.fromkeys(policies)
        for changes in every
    ]


def _scaled(jobs: list[TraceJob], capacity: int, load: float | None) -> list[TraceJob]:
    if load is None:
        return jobs
    if not workload.offered(jobs, capacity):
        raise typer.BadParameter(
            "all jobs come at the same time, so there is no rate to scale", param_hint="--load"
        )
    return workload.scaled(jobs, capacity, load)


def _read(session: Session, assume: timedelta) -> LiveQueue:
    """Read the queue of the service.

    Raises BadParameter if the queue has no jobs, or if the cluster's own queue decides when jobs start.
    """
    with session.client() as client:
        found = live_queue(client.queue_snapshot(session.project), assume.total_seconds())
    if not found.jobs:
        raise typer.BadParameter("no job waits or runs in the service; give a trace", param_hint="FILE")
    if not any(flavor.capacity or flavor.is_followed for flavor in found.cluster.flavors):
        raise typer.BadParameter(
            "the queue of the cluster decides when jobs of the service start, so nothing can be simulated; "
            "give a trace",
            param_hint="FILE",
        )
    return found


def _further(found: LiveQueue, load: float | None, coming: timedelta, seed: int) -> list[TraceJob]:
    if load is None:
        return []
    resources = found.cluster.resources
    return workload.continued(found.jobs, resources, load, coming.total_seconds(), seed)


def _describe(session: Session, found: LiveQueue, assume: timedelta) -> None:
    waiting = len(found.jobs) - found.running
    parts = [f"{words.count(waiting, 'job')} waiting, and {found.running} running"]
    if found.unknown:
        parts.append(
            f"{found.unknown} of unknown length are assumed to run for "
            f"{simulations.duration(assume.total_seconds())}"
        )
    if found.omitted:
        parts.append(f"{words.count(found.omitted, 'further job')} left out")
    session.output.note("; ".join(parts))


def _refuse_options(context: typer.Context, names: Sequence[str], *, is_trace: bool) -> None:
    """Raise BadParameter if one of the options `names` was given: they are for the other kind of input.

    `is_trace` says whether the input is a trace, and not the queue of the service.
    """
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            wanted = "is for the queue of a service, without FILE" if is_trace else "needs a trace: give FILE"
            raise typer.BadParameter(wanted, param_hint=f"--{name}")

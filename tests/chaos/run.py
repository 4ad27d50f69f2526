"""A run: jobs and faults at the same time until all jobs have ended, then the checks."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.chaos import audit as audits
from tests.chaos.checks import check_honest, check_listed
from tests.chaos.clients import Clients, Played, Stuck
from tests.chaos.faults import Injector, Pace
from tests.chaos.logged import errors_in
from tests.chaos.plans import draw
from tests.chaos.probe import Probe
from tests.chaos.world import World

_REPORT_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a run."""

    seed: int
    jobs: int
    faults: int
    acts: Sequence[str]
    """The acts of hostile jobs; without any, there are no hostile jobs."""
    seconds: float | None = None
    """The time limit for submitting jobs; None: until all are submitted."""
    lanes: int = 12
    """The number of jobs at a time."""
    patience: float = 60.0
    """Seconds after which anything counts as stuck."""
    slow: float | None = 5.0
    """The most seconds without a disturbance that an answer, or the start of an honest job, may take."""


@dataclass(slots=True)
class Record:
    """The events and problems of a run."""

    options: Options
    seconds: float = 0.0
    played: Sequence[Played] = ()
    faults: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    """The starts of services."""
    ranks: int = 0
    """The starts of ranks, according to the audit."""
    repeats: Counter[str] = field(default_factory=Counter)
    slowest_answer: float = 0.0
    slowest_start: float = 0.0
    doubles: int = 0
    overlaps: int = 0
    orphans: int = 0
    problems: list[str] = field(default_factory=list)


def run(world: World, options: Options, progress: Callable[[str], None]) -> Record:
    """Run in the world, which is opened and closed here. `progress` gets a line from time to time."""
    begin, record = time.monotonic(), Record(options)
    plans = draw(random.Random(options.seed), options.jobs, options.acts, elastic=world.has_process_groups)
    of_services = (options.faults + 1) // 2
    pace = Pace(options.jobs, (of_services, options.faults - of_services), 2 * options.lanes)
    address = ",".join(service.address for service in world.services)
    clients = Clients(address, plans, options.seed, options.lanes, pace, options.patience)
    clients.peeks = world.peeks
    injectors = [
        Injector(faults, options.seed, pace, kind)
        for kind, faults in enumerate((world.faults(), world.victims.faults()))
    ]
    probe = Probe(clients)
    try:
        world.open()
        clients.start()
        probe.start()
        for injector in injectors:
            injector.start()
        _await(clients, injectors, begin, options, progress)
        probe.end()
        for injector in injectors:
            injector.end()
            record.faults += injector.done
            record.problems += injector.problems
        record.played = tuple(clients.played)
        record.problems += clients.problems
        record.problems += _finish(world, clients, options.patience)
        record.problems += _judge(world, record, clients, probe)
        record.problems += _logged(world)
    finally:
        clients.close()
        probe.end()
        for injector in injectors:
            injector.end()
        world.close()
    record.seconds = time.monotonic() - begin
    return record


def _await(
    clients: Clients,
    injectors: Sequence[Injector],
    begin: float,
    options: Options,
    progress: Callable[[str], None],
) -> None:
    reported = begin
    while clients.is_running and not clients.is_stuck:
        time.sleep(0.1)
        now = time.monotonic()
        if options.seconds is not None and now - begin > options.seconds:
            clients.submit_no_more()
        if now - reported > _REPORT_SECONDS:
            reported = now
            ended = sum(played.end is not None for played in list(clients.played))
            done = sum(injector.done.total() for injector in injectors)
            progress(
                f"{now - begin:5.0f} s: {len(clients.played)} jobs submitted, {ended} ended, {done} faults, "
                f"{len(clients.problems)} problems"
            )


def _finish(world: World, clients: Clients, patience: float) -> Iterator[str]:
    """Let the world settle, and stop it. Yield the problems of jobs, and leftovers."""
    if clients.is_stuck:  # everything still runs
        yield from (problem for service in world.services for problem in service.by_itself)
        return
    try:
        world.heal()
        listed = clients.ask(lambda client: list(client.list(page_size=1000)))
    except (Stuck, TimeoutError) as error:
        yield str(error)
        return
    yield from check_listed([played for played in clients.played if played.job_id], listed)
    deadline = time.monotonic() + patience
    while not world.is_settled() and time.monotonic() < deadline:
        time.sleep(0.1)
    for service in world.services:
        yield from service.stop()
        yield from service.by_itself
    yield from world.problems()


def _judge(world: World, record: Record, clients: Clients, probe: Probe) -> Iterator[str]:
    audit = audits.Audit(world.audit / "audit")
    record.ranks = audit.count("start")
    record.starts = sum(service.starts for service in world.services)
    record.repeats = clients.repeats
    calm, slow = world.disturbances.quiet_seconds, record.options.slow
    record.slowest_answer = max((calm(*span) for span in probe.spans), default=0.0)
    if slow is not None and record.slowest_answer > slow:
        yield f"an answer took {record.slowest_answer:.1f} s without a fault"
    for played in record.played:
        is_known = bool(played.job_id and (played.end is not None or not clients.is_stuck))
        if not played.plan.is_hostile and is_known:
            yield from check_honest(played, audit, world.victims)
            record.doubles += len(list(audit.doubles(played.job_id)))
            record.overlaps += len(list(audit.overlaps(played.job_id, world.victims.forced)))
            if started_at := audit.first_start(played.job_id):
                waited = calm(played.submitted_at, started_at)
                record.slowest_start = max(record.slowest_start, waited)
                if slow is not None and waited > slow:
                    yield f"job {played.job_id} waited {waited:.1f} s for its start without a fault"
        if not clients.is_stuck:
            orphans = list(audit.orphans(played.job_id, world.victims.unsupervised))
            record.orphans += len(orphans)
            yield from orphans
    for played in clients.unlogged:
        assert played.end is not None
        if (played.job_id, played.end.attempt) not in world.victims.deleted:
            yield f"the log of rank 0 of job {played.job_id} ({played.plan.kind}) is missing"
    for text in clients.read:
        if world.secret in text:
            yield f"a client could read a file outside of a job: {text[:200]!r}"


def _logged(world: World) -> Iterator[str]:
    files = [file for service in world.services for file in service.logs()]
    for line, count in errors_in(files, world.foreseen).most_common():
        yield f"logged {count} times: {line[:300]}"

"""A long run of random jobs, kills and errors, with the same checks at the end as for one fault."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.crash.checks import check_jobs
from tests.crash.faults import AtRandom
from tests.crash.forkserver import ForkServer
from tests.crash.kept import KeptService
from tests.crash.scenario import DIE_ONCE, FAIL, HOLD, PlannedJob, submit, wait
from tests.crash.sweep import EXCUSED, finish, hits_in
from tests.crash.world import World
from training_service._generated import training_service_pb2 as pb

_KILLS, _ERRORS = 0.004, 0.01  # probability for each call
_KILLS_FROM_OUTSIDE = 0.02  # probability before each submission
_LONGEST_PAUSE = 0.15  # seconds between submissions
_MAX_UNENDED = 20
_FEWEST_JOBS = 40
_LONGEST_HOLD = 6  # the most submissions until a holding job is cancelled


@dataclass(frozen=True, slots=True)
class Record:
    """The events of a soak, and the problems after it."""

    jobs: int
    hits: Counter[str]
    starts: int
    problems: tuple[str, ...]
    log: str

    def __str__(self) -> str:
        happened = ", ".join(f"{number} x {what}" for what, number in sorted(self.hits.items()))
        return f"{self.jobs} jobs, {self.starts} starts of the service; {happened}"


def soak(forks: ForkServer, world: World, seed: int, seconds: float) -> Record:
    """Submit jobs and inject faults for `seconds`, and until there are some jobs, then let all jobs end.

    The seed determines everything except times.
    """
    dice = random.Random(seed)
    is_over = False

    def faults(start: int) -> str:
        return "" if is_over else str(AtRandom(seed + start, _KILLS, _ERRORS))

    world.make()
    problems: list[str] = []
    planned: list[PlannedJob] = []
    ids: list[int] = []
    excused = frozenset[str]().union(*EXCUSED.values())
    deadline = time.monotonic() + seconds
    try:
        with KeptService(forks, world.folder, faults) as service:
            cancels: list[tuple[int, int]] = []
            while time.monotonic() < deadline or len(ids) < _FEWEST_JOBS:
                if dice.random() < _KILLS_FROM_OUTSIDE:
                    service.kill()
                planned.append(job := _draw(dice, len(planned)))
                ids.append(submit(service, job))
                if pb.cancelled in job.ends:
                    cancels.append((len(ids) + dice.randint(0, _LONGEST_HOLD), ids[-1]))
                cancels = list(_cancel_due(service, cancels, len(ids)))
                if len(ids) > _MAX_UNENDED and not any(job_id == ids[-_MAX_UNENDED] for _, job_id in cancels):
                    wait(service, ids[-_MAX_UNENDED])
                time.sleep(dice.uniform(0, _LONGEST_PAUSE))
            is_over = True
            service.kill()
            list(_cancel_due(service, cancels, len(ids) + _LONGEST_HOLD))
            for job_id in ids:
                wait(service, job_id)
            problems += check_jobs(service, planned, ids, excused, learns=True)
            finish(service, world)
        problems += world.problems()
    except Exception as error:
        problems.append(f"{type(error).__name__}: {error}")
    hits = Counter(what for _, what in hits_in(world))
    return Record(len(ids), hits, len(service.exit_codes), tuple(problems), service.log() if problems else "")


def _draw(dice: random.Random, number: int) -> PlannedJob:
    name, instances = f"job-{number}", dice.choice((1, 1, 2))
    kinds: tuple[Callable[[], PlannedJob], ...] = (
        lambda: PlannedJob(name, (pb.succeed,), instances=instances),
        lambda: PlannedJob(name, (pb.failure,), ("crashed",), instances, FAIL),
        lambda: PlannedJob(name, (pb.succeed,), ("killed",), 1, DIE_ONCE),
        lambda: PlannedJob(name, (pb.cancelled,), (), instances, HOLD, is_run=False),
        lambda: PlannedJob(name, (pb.cancelled, pb.succeed), instances=instances, is_run=False),
    )
    return dice.choices(kinds, (4, 2, 2, 1, 1))[0]()


def _cancel_due(
    service: KeptService, cancels: list[tuple[int, int]], submitted: int
) -> Iterator[tuple[int, int]]:
    """Cancel the jobs that are due, and yield the others."""
    for due, job_id in cancels:
        if due <= submitted:
            service.ask(lambda client, job_id=job_id: client.cancel(job_id))  # type: ignore[misc]
        else:
            yield due, job_id

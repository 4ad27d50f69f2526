"""A few jobs that cover all paths, and a client that submits them until the service answers."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from tests.crash.kept import KeptService, Stuck
from tests.support.patience import PATIENCE
from training_service._generated import training_service_pb2 as pb
from training_service.client import NotFound, TrainingClient, WaitTimedOut
from training_service.client.watching import has_ended

CAPACITY = 2
RANK_PARAMETERS = ("DO", "EXIT_CODE")
"""The job parameters that rank.sh reads."""


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job, the behaviour of its ranks, and its expected end."""

    name: str
    ends: tuple[int, ...]
    """The allowed final statuses."""
    failures: tuple[str, ...] = ()
    """The expected categories of its failed attempts, in order."""
    instances: int = 1
    ranks: Mapping[str, str] = field(default_factory=dict)
    is_run: bool = True
    """True if the job certainly runs."""
    algorithm: str = "witness"
    dataset: str = "1"
    restarts: tuple[int, ...] = ()
    """The restarts of each rank within an attempt, if known."""
    uploads: bool = False
    """True if it runs RUN in an uploaded folder, instead of an algorithm."""
    priority: str = ""
    """The class of its priority; empty: the usual one."""
    stops: tuple[str, ...] = ()
    """The reasons why it is stopped, unless an attempt has failed before: the first words of each reason."""
    expected: timedelta | None = None
    """The run time, as its caller states it."""
    is_evicted: bool = False
    """True if others stop one of its instances while it runs."""
    tolerated: tuple[str, ...] = ()
    """Further allowed categories of failed attempts, such as for a fault before the master ran."""


DATASET = "declared"
"""A dataset that the scenario first declares by the API."""

USER, RUN = "user", "run.sh"
"""The folder of a world that a job uploads, and the program in it."""

HOLD = {"DO": "hold"}
DIE_ONCE = {"DO": "die once"}
FAIL = {"EXIT_CODE": "3"}

FIRST = PlannedJob("first", (pb.succeed,), instances=2)
FAILING = PlannedJob("failing", (pb.failure,), ("crashed",), ranks=FAIL, dataset=DATASET)
HOLDING = PlannedJob("cancelled-while-running", (pb.cancelled,), instances=2, ranks=HOLD)
UNWANTED = PlannedJob("cancelled-while-queued", (pb.cancelled,), ranks=HOLD, is_run=False)
RETRIED = PlannedJob("retried", (pb.succeed,), ("killed",), ranks=DIE_ONCE)
UPLOADED = PlannedJob("uploaded", (pb.succeed,), instances=2, uploads=True)
JOBS = (FIRST, FAILING, HOLDING, UNWANTED, RETRIED, UPLOADED)
"""The jobs in the order of submission.

The third job leaves no capacity for the fourth. The second job is deleted in the end.
"""


LOSING = PlannedJob(
    "loses-a-worker",
    (pb.succeed,),
    instances=2,
    ranks={"DO": "lose a worker"},
    algorithm="elastic-witness",
    restarts=(0, 1),
    tolerated=("killed",),
)


PREEMPTED, SMALLER, LARGER = "Preempted", "Made smaller", "Made larger"
GIVING_WAY = PlannedJob(
    "gives-way",
    (pb.succeed,),
    instances=2,
    ranks={"DO": "hold three times"},
    algorithm="sizable-witness",
    stops=(PREEMPTED, SMALLER, LARGER),
    expected=timedelta(days=1),
    tolerated=("killed",),
)
URGENT = PlannedJob("urgent", (pb.succeed,), instances=2, priority="high")
SMALL = PlannedJob("small", (pb.succeed,), expected=timedelta(days=1))
PREEMPTION = (GIVING_WAY, URGENT, SMALL)
"""The jobs of a preemption, which are the last jobs of a world, in this order.

The first job runs after all others, until the second job is submitted and stops it. The first job runs again
until the third job is submitted, for which the first becomes smaller. When the third job has ended, the first
becomes larger, and ends.
"""


EVICTED = PlannedJob("evicted", (pb.succeed,), instances=2, ranks={"DO": "hold once"}, is_evicted=True)
"""A job that runs until others stop one of its instances. Its next attempt ends."""


def write_user_folder(world: Path, files: Mapping[str, str]) -> None:
    """Write the folder that a job uploads."""
    folder = world / USER
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / RUN).chmod(0o755)


def play(
    service: KeptService, jobs: Sequence[PlannedJob], evict: Callable[[int], None] | None = None
) -> list[int]:
    """Submit the jobs, which contain JOBS, and bring them to their ends. Return their ids in order.

    `evict` stops an instance of EVICTED, which is the first job, as others do.
    """
    service.ask(declare)
    ids = []
    if evict is not None:
        ids = [submit(service, EVICTED)]
        await_running(service, ids[0])
        evict(ids[0])
    ids += [submit(service, job) for job in jobs if job not in (EVICTED, *PREEMPTION)]
    unwanted, held = ids[jobs.index(UNWANTED)], ids[jobs.index(HOLDING)]
    service.ask(lambda client: client.cancel(unwanted))
    await_output(service, held, HOLDING.instances)
    service.ask(lambda client: client.cancel(held))
    if URGENT in jobs:
        # Otherwise the elastic job could start beside a job that was in its backoff, and grow later.
        wait(service, ids[jobs.index(RETRIED)])
        ids.append(submit(service, GIVING_WAY))
        giving_way = ids[-1]
        await_output(service, giving_way, GIVING_WAY.instances)
        ids.append(submit(service, URGENT))
        wait(service, ids[-1])
        await_output(service, giving_way, GIVING_WAY.instances)
        ids.append(submit(service, SMALL))
    for job_id in ids:
        wait(service, job_id)
    return ids


def declare(client: TrainingClient) -> None:
    """Declare DATASET with the files of the built-in dataset 1. It may be repeated."""
    [built_in] = client.catalog.datasets(name="*")
    client.catalog.set_dataset(DATASET, {"uri": built_in.uri.replace("{dataset_id}", "1")})


def submit(service: KeptService, job: PlannedJob) -> int:
    """Submit a job until there is an answer. The request key ensures that it is only one job."""

    def send(client: TrainingClient) -> int:
        if job.uploads:
            folder = service.folder / USER
            return client.run(
                [f"./{RUN}"], folder=folder, name=job.name, instances=job.instances, request_key=job.name
            )
        return client.submit(
            job.algorithm,
            job.dataset,
            "v1",
            name=job.name,
            instances=job.instances,
            parameters=dict(job.ranks),
            priority=job.priority,
            expected=job.expected,
            request_key=job.name,
        )

    return service.ask(send)


def wait(service: KeptService, job_id: int) -> None:
    """Wait until the job has ended. It may wait for others: it is stuck only if no job changes any more.
    Raises WaitTimedOut if it is stuck.
    """
    while True:
        before = _phases(service)
        try:
            service.ask(lambda client: client.wait(job_id, timeout=PATIENCE))
        except WaitTimedOut:
            if _phases(service) == before:
                raise
        else:
            return


def delete(service: KeptService, job_id: int) -> None:
    """Delete an ended job until it is gone: a repetition finds no job."""
    with suppress(NotFound):
        service.ask(lambda client: client.delete(job_id))


def await_running(service: KeptService, job_id: int) -> None:
    """Wait until all ranks of the job run, or the job has ended."""

    def runs(client: TrainingClient) -> bool:
        status = client.status(job_id)
        phases = {rank.phase for rank in status.ranks}
        return has_ended(status) or phases == {pb.RANK_PHASE_RUNNING}

    _until(service, runs, f"job {job_id} does not run")


def await_output(service: KeptService, job_id: int, instances: int) -> None:
    """Wait until all ranks of the job have printed something, or the job has ended."""

    def has_printed(client: TrainingClient) -> bool:
        status = client.status(job_id)
        if status.status != pb.running:
            return has_ended(status)
        logs = [client.logs(job_id, rank=rank, tail_lines=1) for rank in range(instances)]
        return all(next(log, None) for log in logs)

    _until(service, has_printed, f"job {job_id} prints nothing")


def _until(service: KeptService, condition: Callable[[TrainingClient], bool], otherwise: str) -> None:
    before, since = _phases(service), time.monotonic()
    while not service.ask(condition):
        if time.monotonic() > since + PATIENCE:
            if _phases(service) == before:
                raise Stuck(otherwise)
            before, since = _phases(service), time.monotonic()
        time.sleep(0.05)


def _phases(service: KeptService) -> dict[int, tuple[int, int]]:
    """Return the status and the attempt of each job."""
    return service.ask(lambda client: {job.job_id: (job.status, job.attempt) for job in client.list()})

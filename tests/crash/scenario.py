"""A handful of jobs that go through all paths, and the clients that send them and do not give up."""

import fcntl
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.kept import PATIENCE, KeptService
from training_service._generated import training_service_pb2 as pb
from training_service.client import TrainingClient

CAPACITY = 2


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job, how its ranks behave, and the end that it should reach."""

    name: str
    status: int
    category: str = ""
    instances: int = 1
    attempts: int = 1
    """How many it needs; none if it is never started."""
    ranks: Mapping[str, str] = field(default_factory=dict)


FIRST = PlannedJob("first", pb.succeed, instances=2, ranks={"DO": "wait"})
FAILING = PlannedJob("failing", pb.failure, "crashed", ranks={"EXIT_CODE": "3"})
HOLDING = PlannedJob("cancelled-while-running", pb.cancelled, instances=2, ranks={"DO": "hold"})
UNWANTED = PlannedJob("cancelled-while-queued", pb.cancelled, attempts=0)
RETRIED = PlannedJob("retried", pb.succeed, attempts=2, ranks={"DO": "die once"})
JOBS = (FIRST, FAILING, HOLDING, UNWANTED, RETRIED)
"""In the order in which they are submitted. No two of them that follow each other fit in together."""


class Gate:
    """Ranks that are to wait do so until this is opened."""

    def __init__(self, witness: Path) -> None:
        self._file = os.open(witness / "gate", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __enter__(self) -> "Gate":
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._file)


def play(service: KeptService, witness: Path) -> dict[str, int]:
    """Have every job submitted and brought to its end, whatever happens to the service. Their ids."""
    ids: dict[str, int] = {}
    with Gate(witness):
        for job in JOBS:
            ids[job.name] = service.ask(lambda client, job=job: submit(client, job))  # type: ignore[misc]
        service.ask(lambda client: client.cancel(ids[UNWANTED.name]))
    held = ids[HOLDING.name]
    # Until its ranks have something to say; the job may also have ended without.
    for rank in range(HOLDING.instances):
        service.ask(lambda client, rank=rank: next(iter(client.logs(held, rank=rank, follow=True)), None))  # type: ignore[misc]
    service.ask(lambda client: client.cancel(held))
    for job_id in ids.values():
        service.ask(lambda client, job_id=job_id: client.wait(job_id, timeout=PATIENCE))  # type: ignore[misc]
    return ids


def submit(client: TrainingClient, job: PlannedJob) -> int:
    """Send it; the key makes it one job however often it is sent."""
    return client.submit(
        "witness",
        "1",
        "v1",
        name=job.name,
        instances=job.instances,
        parameters=dict(job.ranks),
        request_key=job.name,
    )

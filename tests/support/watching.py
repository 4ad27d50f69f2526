"""Waiting for states of jobs with a client."""

from collections.abc import Callable

from training_service._generated import training_service_pb2 as pb
from training_service.client import TrainingClient


def comes(
    client: TrainingClient, job: int, condition: Callable[[pb.GetTrainingStatusResponse], bool]
) -> pb.GetTrainingStatusResponse:
    """Wait for a status that meets the condition, at most until the test times out, and return it."""
    for seen in client.watch(job):
        if condition(seen):
            return seen
    raise AssertionError(f"job {job} ended without meeting the condition: {client.status(job)}")


def all_run(seen: pb.GetTrainingStatusResponse) -> bool:
    return seen.status == pb.running and {rank.phase for rank in seen.ranks} == {pb.RANK_PHASE_RUNNING}


def printed(client: TrainingClient, job: int, rank: int, *, follow: bool = False) -> str:
    return "".join(piece.text for piece in client.logs(job, rank=rank, follow=follow))


def seen(client: TrainingClient, job: int, *, step: int, restarts: int = 0) -> pb.GetTrainingStatusResponse:
    """Wait until the job has reached this step after at least this number of restarts of ranks.

    Return the status.
    """
    for status in client.watch(job):
        again = sum(rank.restarts for rank in status.ranks)
        if status.status == pb.running and status.progress.step >= step and again >= restarts:
            return status
    raise AssertionError(f"job {job} ended before: {client.status(job)}")

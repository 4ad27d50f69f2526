"""Waits for the ends of real trainings."""

from tests.support.patience import PATIENCE
from training_service._generated import training_service_pb2 as pb
from training_service.client import TrainingClient
from training_service.client.errors import WaitTimedOut


def end_of(client: TrainingClient, job: int) -> pb.GetTrainingStatusResponse:
    """Wait until a job has ended, and return its status.

    On a busy machine, a training may take long. So it counts as stuck only if it made no step and did not
    change its state for PATIENCE seconds, or if it made no step in the first 2 * PATIENCE seconds. Raises
    WaitTimedOut.
    """
    last, patience = None, 2 * PATIENCE
    while True:
        try:
            return client.wait(job, timeout=patience)
        except WaitTimedOut as error:
            now = (len(error.status.moves), error.status.progress.step)
            if now == last or (last is None and not error.status.progress.step):
                raise
            last, patience = now, PATIENCE

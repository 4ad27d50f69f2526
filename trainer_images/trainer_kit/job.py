"""Which job this process works for, as the service tells it."""

from dataclasses import dataclass
from typing import Self

from trainer_kit import environment


@dataclass(frozen=True)
class Job:
    """One attempt at one job: where its data lies and where its model goes.

    Only the two addresses are needed to train; the rest says where a model came from, and has
    defaults so that training code also runs by hand.
    """

    job_id: str
    attempt: int
    algorithm: str
    dataset_id: str
    dataset_version_hash: str
    data_uri: str
    """The folder of the training data: any fsspec URI, or a plain path."""
    model_name: str
    model_uri: str
    """The folder to publish the model to: any fsspec URI, or a plain path."""

    @classmethod
    def from_environment(cls) -> Self:
        """Reads the contract's variables; raises ParameterError naming a missing one."""
        return cls(
            job_id=environment.text("JOB_ID", default="local"),
            attempt=environment.integer("JOB_ATTEMPT", default=1, at_least=1, at_most=2**31),
            algorithm=environment.text("ALGORITHM_NAME", default="unknown"),
            dataset_id=environment.text("TRAINING_DATASET_ID", default="unknown"),
            dataset_version_hash=environment.text("TRAINING_DATASET_VERSION_HASH", default="unknown"),
            data_uri=environment.text("TRAINING_DATA_URI"),
            model_name=environment.text("MODEL_NAME", default="unnamed"),
            model_uri=environment.text("MODEL_URI"),
        )

"""The job of this process, read from its environment."""

from dataclasses import dataclass
from typing import Self

from trainer_kit import environment


@dataclass(frozen=True)
class Job:
    """One attempt of one job, with the locations of its data and its model.

    Training needs only `data_uri` and `model_uri`. The other fields describe the origin of a model.
    `from_environment` has defaults for them, so that training code also runs without the service.
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
        """Read the environment variables. Raises ParameterError, which names a missing or invalid one."""
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

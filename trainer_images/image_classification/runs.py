"""The parts of a training run that all programs of this example share."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trainer_kit.group import Group
from trainer_kit.job import Job

from image_classification.data import Dataset

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def description(
    job: Job,
    dataset: Dataset,
    parameters: "DataclassInstance",
    group: Group,
    epochs: Sequence[Mapping[str, float]],
) -> dict[str, Any]:
    """Return the description that is published with the model. `epochs` has the metrics of each epoch."""
    return {
        "model_name": job.model_name,
        "job_id": job.job_id,
        "dataset_id": job.dataset_id,
        "dataset_version_hash": job.dataset_version_hash,
        "parameters": asdict(parameters),
        "world_size": group.size,
        "normalization": {"mean": dataset.mean, "deviation": dataset.deviation},
        "epochs": list(epochs),
    }

"""What may run and what there is to train on: algorithms and datasets, as configuration names them."""

from job_tracker.catalog.algorithms import Algorithm, ProcessRecipe
from job_tracker.catalog.datasets import Dataset
from job_tracker.catalog.parameters import INSTANCES_PARAMETER, PARAMETER_NAME, Parameter, shown

__all__ = [
    "INSTANCES_PARAMETER",
    "PARAMETER_NAME",
    "Algorithm",
    "Dataset",
    "Parameter",
    "ProcessRecipe",
    "shown",
]

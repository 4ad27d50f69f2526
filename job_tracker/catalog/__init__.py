"""Algorithms and datasets, and the parameters and options that a request may set."""

from job_tracker.catalog.algorithms import Algorithm, algorithm_model
from job_tracker.catalog.datasets import Dataset
from job_tracker.catalog.entries import Catalog, Entry, FixedCatalog, Origin
from job_tracker.catalog.job_defaults import JobDefaults
from job_tracker.catalog.parameters import INSTANCES_PARAMETER, PARAMETER_NAME, Parameter
from job_tracker.catalog.request_limits import RequestLimits

__all__ = [
    "INSTANCES_PARAMETER",
    "PARAMETER_NAME",
    "Algorithm",
    "Catalog",
    "Dataset",
    "Entry",
    "FixedCatalog",
    "JobDefaults",
    "Origin",
    "Parameter",
    "RequestLimits",
    "algorithm_model",
]

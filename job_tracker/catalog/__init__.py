"""What may run and what there is to train on: algorithms and datasets, as configuration names them."""

from job_tracker.catalog.algorithms import Algorithm, ProcessRecipe
from job_tracker.catalog.containers import ContainerOptions, DockerRecipe
from job_tracker.catalog.datasets import Dataset
from job_tracker.catalog.job_defaults import JobDefaults
from job_tracker.catalog.parameters import INSTANCES_PARAMETER, PARAMETER_NAME, Parameter
from job_tracker.catalog.pods import KubernetesRecipe, PodOptions, RequestedPodOptions
from job_tracker.catalog.request_limits import RequestLimits

__all__ = [
    "INSTANCES_PARAMETER",
    "PARAMETER_NAME",
    "Algorithm",
    "ContainerOptions",
    "Dataset",
    "DockerRecipe",
    "JobDefaults",
    "KubernetesRecipe",
    "Parameter",
    "PodOptions",
    "ProcessRecipe",
    "RequestLimits",
    "RequestedPodOptions",
]

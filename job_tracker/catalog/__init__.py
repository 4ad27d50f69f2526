"""What may run and what there is to train on: algorithms and datasets, as configuration names them."""

from job_tracker.catalog.algorithms import Algorithm, ProcessRecipe
from job_tracker.catalog.containers import ContainerOptions, DockerRecipe
from job_tracker.catalog.datasets import Dataset
from job_tracker.catalog.job_policy import JobPolicy
from job_tracker.catalog.parameters import INSTANCES_PARAMETER, PARAMETER_NAME, Parameter, shown
from job_tracker.catalog.pod_policy import PodPolicy
from job_tracker.catalog.pods import KubernetesRecipe, PodOptions, RequestedPodOptions

__all__ = [
    "INSTANCES_PARAMETER",
    "PARAMETER_NAME",
    "Algorithm",
    "ContainerOptions",
    "Dataset",
    "DockerRecipe",
    "JobPolicy",
    "KubernetesRecipe",
    "Parameter",
    "PodOptions",
    "PodPolicy",
    "ProcessRecipe",
    "RequestedPodOptions",
    "shown",
]

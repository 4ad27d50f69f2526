"""Jobs and algorithms that show everything that a plan may hold."""

from datetime import timedelta
from typing import Any

from job_tracker.backends.kubernetes.plan import KubernetesPlan, PlanOptions, plan
from job_tracker.catalog import Algorithm, KubernetesRecipe, PodOptions
from job_tracker.domain.job import Job
from tests.support.jobs import job

NAME = "intent-classification"
COMMAND = ("python", "-m", "intent_classification.train")


def recipe(**options: Any) -> KubernetesRecipe:
    return KubernetesRecipe(**{"image": "intent-classification:0.1.0", "command": COMMAND, **options})


def algorithm(**options: Any) -> Algorithm:
    return Algorithm(free_parameters=True, kubernetes=recipe(**options))


def planned(
    the_job: Job | None = None, the_algorithm: Algorithm | None = None, pod: PodOptions | None = None
) -> KubernetesPlan:
    options = PlanOptions(
        namespace="training",
        instance="ours",
        pod=pod or PodOptions(),
        stop_grace=timedelta(seconds=10),
    )
    the_job = the_job or job(algorithm=NAME)
    return plan(the_job, {the_job.spec.algorithm: the_algorithm or algorithm()}, options)


def variables_of(pod: Any) -> dict[str, Any]:
    """What the training container is told; a value that is not plain stays an object."""
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in training_of(pod)["env"]}


def training_of(pod: Any) -> Any:
    (container,) = [each for each in pod["spec"]["containers"] if each["name"] == "training"]
    return container

"""Plans and containers for the tests of the Docker backend."""

from typing import Any

from job_tracker.backends.docker.options import ContainerOptions
from job_tracker.backends.docker.plan import DockerPlan, plan
from job_tracker.backends.docker.plugin import DockerPlugin
from job_tracker.backends.docker.settings import DockerSettings
from job_tracker.catalog import Algorithm
from job_tracker.domain.job import Job
from tests.support.catalog import algorithm_of, resolved
from tests.support.programs import program_job

NAME = "intent-classification"
COMMAND = ("python", "-m", "intent_classification.train")


def algorithm(**recipe: Any) -> Algorithm:
    values = {"image": "intent-classification:0.1.0", "command": COMMAND, **recipe}
    made: Algorithm = algorithm_of(docker=values)
    return made


def planned(
    job: Job, of: Algorithm | None = None, container: ContainerOptions | None = None, **options: Any
) -> DockerPlan:
    settings = DockerSettings(instance="test", container=container or ContainerOptions(), **options)
    wanted = resolved(job, {NAME: of or algorithm()}, "docker", DockerPlugin(settings))
    return plan(wanted, settings, most_log=1 << 20)


TREE = "0123456789abcdef" * 4


def planned_program(container: ContainerOptions | None = None, **changes: Any) -> DockerPlan:
    """Return the plan of a job that runs an uploaded program."""
    settings = DockerSettings(
        instance="test",
        container=container or ContainerOptions(),
        program_image="registry.example.com/team:1",
    )
    values: dict[str, Any] = {"environment": {"MODE": "a $(HOME)"}, "job_id": 7, "attempt": 2, **changes}
    command = ("python", "train.py", "$(HOME)")
    wanted = program_job(DockerPlugin(settings), "docker", TREE, *command, **values)
    return plan(wanted, settings, most_log=1 << 20)


def variables_of(the_plan: DockerPlan, rank: int = 0) -> dict[str, str]:
    return dict(each.split("=", 1) for each in the_plan.containers[rank].request["Env"])

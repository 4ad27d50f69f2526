"""Advice about uploaded programs is for those who uploaded them."""

from dataclasses import replace
from typing import Any

import pytest

from job_tracker.backends.docker.containers import Container
from job_tracker.backends.docker.settings import DockerSettings
from job_tracker.backends.docker.status import observe_rank as observe_container
from job_tracker.backends.kubernetes import fetch_program
from job_tracker.backends.kubernetes.groups import Groups
from job_tracker.backends.kubernetes.manifests import FETCH
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.backends.shared.programs import DEFAULT_IMAGE, for_program
from job_tracker.domain.diagnosis import Category, Diagnosis
from tests.support.docker_plans import planned_program as planned_containers
from tests.support.jobs import NOON
from tests.support.kubernetes_plans import planned_program as planned_pods
from tests.support.pods import container, pod, terminated, waiting


@pytest.mark.parametrize("backend", ["docker", "kubernetes"])
@pytest.mark.parametrize("category", Category)
def test_only_advice_about_images_and_commands_is_replaced(category: Category, backend: str) -> None:
    given = Diagnosis(category=category, summary="a", resolution="Correct algorithms.NAME", rank=1)
    found = for_program(given, backend)
    assert replace(found, resolution=given.resolution) == given
    replaced = {"command_not_found", "command_not_executable", "image_pull_failed", "invalid_image"}
    assert (found != given) == (category in replaced)
    assert "{" not in found.resolution


def test_the_default_image_is_that_of_the_shipped_examples() -> None:
    assert DockerSettings().program_image == KubernetesSettings().program_image == DEFAULT_IMAGE


def test_a_missing_file_in_a_container_is_named_to_the_caller() -> None:
    planned = planned_containers().containers[0]
    ended = Container(
        id="a",
        name=planned.name,
        labels=planned.request["Labels"],
        status="exited",
        program="",
        created_at=NOON.timestamp(),
        exit_code=127,
        ended_at=NOON.timestamp(),
        log_tail="[FATAL tini (7)] exec ./trian.py failed",
    )
    seen = observe_container(0, ended, launching=False, stopping=False, ended_before=False)
    assert seen.diagnosis is not None
    assert "with ./ before it" in seen.diagnosis.resolution
    assert "docker.program_image" in seen.diagnosis.resolution


def diagnosed(**status: Any) -> Diagnosis:
    """Return the diagnosis of a pod of a program in this state."""
    planned = planned_pods().pods[0]
    seen = pod("Failed", **status)
    whole = {
        **seen,
        "metadata": {**seen["metadata"], **planned["metadata"], "uid": "u", "resourceVersion": "1"},
    }
    groups = Groups(KubernetesSettings())
    groups.take([(whole, False)])
    [observation] = groups.observe_all().values()
    diagnosis = observation.first_failure
    assert diagnosis is not None
    groups.close()
    return diagnosis


@pytest.mark.parametrize(
    ("code", "advice", "retryable"),
    [
        (fetch_program.NO_GRPC, "kubernetes.fetch_image", False),
        (fetch_program.REFUSED, "trainctl run", False),
        (fetch_program.UNREACHABLE, "network policies", True),
        (fetch_program.NOT_WRITTEN, "scratch_size", True),
        (128, "has python3 with grpcio", False),
    ],
)
async def test_a_failed_fetch_says_what_to_do(code: int, advice: str, retryable: bool) -> None:
    end = terminated(code, message="the reason")
    found = diagnosed(
        initContainerStatuses=[container(end, FETCH)],
        containerStatuses=[container(waiting("PodInitializing"))],
    )
    assert (found.category, found.retryable) == (Category.INIT_FAILED, retryable)
    assert advice in found.resolution
    assert "the reason" in found.detail

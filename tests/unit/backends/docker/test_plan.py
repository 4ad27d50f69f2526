"""Plans of groups, compared as a whole with the requests in the folder beside this file."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from job_tracker.backends.docker.environments import volume_of
from job_tracker.backends.docker.options import ContainerOptions, DockerRecipe
from job_tracker.backends.docker.plan import DockerPlan
from job_tracker.backends.shared import requirements_runner
from job_tracker.backends.shared.labels import RESTARTS
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.errors import LaunchFailed
from job_tracker.domain.group import InstanceOptions, Phase, RankStatus
from tests.support.docker_plans import NAME, TREE, algorithm, planned, planned_program, variables_of
from tests.support.jobs import NOON, job, job_of, spec

REQUESTS = Path(__file__).with_name("requests")
FOR_ALL = ContainerOptions.model_validate(
    {
        "resources": {"cpu": "1.5", "memory": "2Gi"},
        "run_as_user": 10001,
        "volumes": [{"source": "/srv/storage", "mount_path": "/storage"}],
        "inherit": ["HTTPS_PROXY"],
        "labels": {"team": "ml"},
    }
)
OF_ALGORITHM: dict[str, Any] = {
    "resources": {"memory": "4Gi", "nvidia.com/gpu": 2},
    "shm_size": "8Gi",
    "scratch_size": "512Mi",
    "pids_limit": 512,
    "working_directory": "/app",
    "volumes": [{"source": "datasets", "mount_path": "/datasets", "read_only": True}],
    "secret_files": {"AWS_SECRET_ACCESS_KEY": "/etc/training/key"},
}
OF_REQUEST = {"resources": {"cpu": "8"}, "nproc_per_node": 2, "labels": {"experiment": "a7"}}
GOLDEN = {
    "one": planned(job({"EPOCHS": "15"}, algorithm=NAME)),
    "everything": planned(
        job_of(
            spec({"EPOCHS": "15"}, algorithm=NAME, instances=2, pod_options=OF_REQUEST), job_id=7, attempt=2
        ),
        algorithm(**OF_ALGORITHM),
        FOR_ALL,
    ),
    "program": planned_program(
        FOR_ALL, instances=2, options=InstanceOptions(resources={"memory": "4Gi"}, nproc_per_node=2)
    ),
}


def requests_of(the_plan: DockerPlan) -> list[Any]:
    return [{"name": each.name, "request": dict(each.request)} for each in the_plan.containers]


@pytest.mark.parametrize("name", GOLDEN)
def test_a_plan_equals_its_golden_manifest(name: str) -> None:
    the_plan = GOLDEN[name]
    text = json.dumps(requests_of(the_plan)).replace(the_plan.digest, "DIGEST")
    assert json.loads(text) == list(yaml.safe_load_all((REQUESTS / f"{name}.yaml").read_text()))


def test_a_group_has_names_for_its_containers_and_a_network() -> None:
    three = planned(job(algorithm=NAME, instances=3))
    assert [each.name for each in three.containers] == [
        "intent-classification-1-master",
        "intent-classification-1-1-worker",
        "intent-classification-1-2-worker",
    ]
    assert three.network == "intent-classification-1"
    assert variables_of(three, 2)["MASTER_ADDR"] == "intent-classification-1-master"
    assert GOLDEN["one"].network is None


@pytest.mark.parametrize(
    "other",
    [
        planned(job({"EPOCHS": "16"}, algorithm=NAME)),
        planned(replace(job({"EPOCHS": "15"}, algorithm=NAME), submitted_at=NOON.replace(year=2025))),
        planned(job({"EPOCHS": "15"}, algorithm=NAME), pull="never"),
        planned(job({"EPOCHS": "15"}, algorithm=NAME), algorithm(inherit=["SITE"])),
    ],
)
def test_another_plan_has_another_digest(other: DockerPlan) -> None:
    assert other.digest != GOLDEN["one"].digest


def test_a_restart_of_a_rank_does_not_change_the_digest() -> None:
    first = job(algorithm=NAME, instances=2)
    again = replace(first, ranks=(RankStatus(0, Phase.RUNNING), RankStatus(1, Phase.PENDING, restarts=1)))
    assert planned(again).digest == planned(first).digest
    assert RESTARTS not in planned(first).containers[1].request["Labels"]
    assert planned(again).containers[1].request["Labels"][RESTARTS] == "1"


def test_a_secret_is_never_in_the_plan() -> None:
    everything = GOLDEN["everything"]
    assert everything.containers[0].secret_files == {"AWS_SECRET_ACCESS_KEY": "/etc/training/key"}
    assert "AWS_SECRET_ACCESS_KEY" not in variables_of(everything)


def test_a_removed_algorithm_cannot_be_launched() -> None:
    with pytest.raises(LaunchFailed) as refused:
        planned(job(algorithm="another"))
    assert refused.value.diagnosis.category is Category.ALGORITHM_GONE


@pytest.mark.parametrize(
    "source", ["/var/run/docker.sock", "/run", "/var", "/", "relative/path", "/srv/../run", "-dash"]
)
def test_an_invalid_source_or_one_with_the_socket_of_the_engine_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="source"):
        DockerRecipe.model_validate({"image": "a:1", "volumes": [{"source": source, "mount_path": "/x"}]})


def test_an_unknown_resource_is_refused() -> None:
    with pytest.raises(ValueError, match="'ephemeral-storage' is not a resource of containers"):
        DockerRecipe.model_validate({"image": "a:1", "resources": {"ephemeral-storage": "1Gi"}})


def test_the_files_of_a_program_are_in_a_volume_that_goes_with_the_container() -> None:
    the_plan = planned_program(ContainerOptions(working_directory="/app"))
    request = the_plan.containers[0].request
    assert the_plan.program == ("default", TREE)
    assert request["WorkingDir"] == variables_of(the_plan)["HOME"] == "/home/training/work"
    assert request["HostConfig"]["Mounts"] == [{"Type": "volume", "Target": "/home/training"}]
    assert "/home/training" not in request["HostConfig"]["Tmpfs"]
    assert request["Entrypoint"] == ["python", "train.py", "$(HOME)"], "without a shell"


def test_requirements_are_installed_before_the_command_into_a_volume_of_the_project() -> None:
    request = planned_program(requirements="r.txt").containers[0].request
    *words, options = request["Entrypoint"][:6]
    assert words == ["python3", "-I", "-S", "-c", Path(requirements_runner.__file__).read_text()]
    assert json.loads(options) == {
        "root": "/home/training/environments",
        "file": "r.txt",
        "tree": TREE,
        "image": "registry.example.com/team:1",
        "keep": 7 * 86400,
        "most": 20,
    }
    assert request["Entrypoint"][6:] == ["python", "train.py", "$(HOME)"]
    home, environments = request["HostConfig"]["Mounts"]
    assert home == {"Type": "volume", "Target": "/home/training"}
    assert environments["Target"] == "/home/training/environments"
    labels = environments["VolumeOptions"]["Labels"]
    assert labels["app.kubernetes.io/instance"] == "test"
    assert environments == volume_of("test", labels["training-service/environments-of"])
    sources = {volume_of(*each)["Source"] for each in [("a", "b"), ("a", "c"), ("b", "b")]}
    assert len(sources) == 3, "projects and services share none"

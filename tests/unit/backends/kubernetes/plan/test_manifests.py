"""The Kubernetes objects of a job, compared as a whole with the manifests beside this file."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from job_tracker.backends.kubernetes import fetch_program
from job_tracker.backends.kubernetes.labels import digest_of, group_of, owned_by, rank_of, restarts_of
from job_tracker.backends.kubernetes.options import PodOptions
from job_tracker.backends.kubernetes.plan import KubernetesPlan
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.backends.shared import requirements_runner
from job_tracker.backends.shared.labels import PLAN_DIGEST
from job_tracker.catalog import Algorithm
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.errors import LaunchFailed
from job_tracker.domain.group import GroupRef, Phase, RankStatus
from job_tracker.domain.job import Job
from job_tracker.domain.policies import Elastic
from job_tracker.frameworks import Traits
from job_tracker.frameworks.pytorch import PyTorch
from tests.support.catalog import algorithm_of, pod_resolver
from tests.support.jobs import NOON, job, job_of, spec
from tests.support.kubernetes_plans import (
    COMMAND,
    EVERYTHING,
    FOR_PROGRAMS,
    GOLDEN,
    NAME,
    algorithm,
    objects_of,
    planned,
    planned_program,
    training_of,
    variables_of,
)
from tests.support.pod_security import violations

FETCHING = Path(fetch_program.__file__).read_text()
MANIFESTS = Path(__file__).with_name("manifests")


class EveryRankAddressed(PyTorch):
    """A framework that gives each rank the addresses of all others, as TensorFlow's does."""

    traits = Traits(addresses_every_rank=True)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_plan_equals_its_golden_manifest(name: str) -> None:
    the_plan = GOLDEN[name]
    text = json.dumps(objects_of(the_plan)).replace(the_plan.digest, "DIGEST")
    text = text.replace(json.dumps(FETCHING), '"FETCHING"')
    assert json.loads(text) == list(yaml.safe_load_all((MANIFESTS / f"{name}.yaml").read_text()))


def test_a_group_has_the_expected_names() -> None:
    three = GOLDEN["three"]
    assert [pod["metadata"]["name"] for pod in three.pods] == [
        "intent-classification-1-master",
        "intent-classification-1-1-worker",
        "intent-classification-1-2-worker",
    ]
    assert three.service is not None
    assert three.service["metadata"]["name"] == "intent-classification-1-master-service"
    assert GOLDEN["one"].service is None
    assert EVERYTHING.pods[0]["metadata"]["name"] == "intent-classification-7-r1-master"


def test_labels_of_an_object_are_read_back() -> None:
    three = GOLDEN["three"]
    assert three.group == GroupRef("intent-classification-1", 1, 1)
    assert [group_of(each) for each in objects_of(three)] == [three.group] * 4
    assert [rank_of(pod) for pod in three.pods] == [0, 1, 2]
    assert {digest_of(each) for each in objects_of(three)} == {three.digest}


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"labels": None},
        {"labels": {"app.kubernetes.io/managed-by": "helm"}},
        {"labels": {**GOLDEN["one"].pods[0]["metadata"]["labels"], "training-service/job-id": "x"}},
        {**GOLDEN["one"].pods[0]["metadata"], "name": "another-pod"},
    ],
)
def test_a_foreign_object_has_no_rank(metadata: dict[str, Any]) -> None:
    assert rank_of({"metadata": {"name": "a", **metadata}}) is None


def test_an_object_is_owned_by_the_live_master() -> None:
    three = GOLDEN["three"]
    master = {**three.pods[0], "metadata": {**three.pods[0]["metadata"], "uid": "u-1"}}
    owned = owned_by(three.pods[1], master)
    assert owned["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "intent-classification-1-master",
            "uid": "u-1",
            "controller": False,
            "blockOwnerDeletion": False,
        }
    ]
    del owned["metadata"]["ownerReferences"]
    assert owned == three.pods[1]


SAME = job({"EPOCHS": "15"}, algorithm=NAME)


@pytest.mark.parametrize(
    "other",
    [
        planned(job({"EPOCHS": "16"}, algorithm=NAME)),
        planned(replace(SAME, submitted_at=NOON + timedelta(microseconds=1))),
        planned(SAME, algorithm(image="intent-classification:0.1.1")),
        planned(SAME, pod=PodOptions(shm_size="2Gi")),
        GOLDEN["three"],
    ],
)
def test_a_plan_of_another_job_has_another_digest(other: KubernetesPlan) -> None:
    """Job 1 of an older store may have the same names; only the time of submission certainly differs."""
    assert planned(SAME).digest == GOLDEN["one"].digest
    assert other.digest != GOLDEN["one"].digest


def test_the_digest_is_on_the_objects_only() -> None:
    text = json.dumps(objects_of(EVERYTHING))
    assert text.count(EVERYTHING.digest) == text.count(PLAN_DIGEST) == 3


def test_a_users_value_cannot_refer_to_a_secret() -> None:
    """Kubernetes replaces $(NAME) in a value by a variable, and $$ by $."""
    assert variables_of(EVERYTHING.pods[0])["NOTE"] == "costs $$(AWS_SECRET_ACCESS_KEY) or $$$$5"


def test_a_secret_variable_is_never_plain_and_never_overridden_by_users() -> None:
    by_user = planned(
        job({"TOKEN": "mine"}),
        None,
        PodOptions.model_validate({"secret_environment": {"TOKEN": {"secret": "hub", "key": "token"}}}),
    )
    names = [variable["name"] for variable in training_of(by_user.pods[0])["env"]]
    assert names.count("TOKEN") == 1
    assert variables_of(by_user.pods[0])["TOKEN"] == {"secretKeyRef": {"name": "hub", "key": "token"}}


@pytest.mark.parametrize(
    ("cpu", "processes", "threads"),
    [("4", 1, "4"), ("4", 2, "2"), ("500m", 1, "1"), ("2500m", 1, "2"), (None, 1, None)],
)
def test_there_are_as_many_threads_as_cpus(cpu: str | None, processes: int, threads: str | None) -> None:
    options = {"resources": {"cpu": cpu} if cpu else {}, "nproc_per_node": processes}
    (pod,) = planned(None, algorithm(**options)).pods
    assert variables_of(pod).get("OMP_NUM_THREADS") == threads


def test_without_a_limit_the_number_of_cpus_is_unknown() -> None:
    (pod,) = planned(None, algorithm(resources={"cpu": "4"}, limit_cpu=False)).pods
    assert "OMP_NUM_THREADS" not in variables_of(pod)
    assert training_of(pod)["resources"] == {"requests": {"cpu": "4"}}


def test_one_instance_is_its_own_master() -> None:
    found = variables_of(GOLDEN["one"].pods[0])
    assert (found["MASTER_ADDR"], found["WORLD_SIZE"], found["RANK"]) == ("127.0.0.1", "1", "0")


def test_several_processes_get_variables_of_the_node_and_are_started_by_torchrun() -> None:
    pod = EVERYTHING.pods[1]
    found = variables_of(pod)
    assert not {"WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"} & found.keys()
    assert (found["PET_NNODES"], found["PET_NODE_RANK"], found["PET_NPROC_PER_NODE"]) == ("2", "1", "2")
    assert training_of(pod)["command"] == ["torchrun", "--no-python", *COMMAND]


def test_a_torchrun_command_is_not_wrapped_in_torchrun() -> None:
    (pod,) = planned(None, algorithm(command=["torchrun", "train.py"], nproc_per_node=2)).pods
    assert training_of(pod)["command"] == ["torchrun", "train.py"]


def test_a_framework_can_address_every_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """HOSTNAME.SUBDOMAIN resolves for the pods that the Service of that name selects."""
    monkeypatch.setattr("job_tracker.backends.kubernetes.plan.FRAMEWORKS", {"pytorch": EveryRankAddressed()})
    three = planned(job(algorithm=NAME, instances=3))
    assert three.service is not None
    selected = three.service["spec"]["selector"].items()
    assert all(selected <= pod["metadata"]["labels"].items() for pod in three.pods)
    service = three.service["metadata"]["name"]
    assert {pod["spec"]["subdomain"] for pod in three.pods} == {service}
    master = f"{three.pods[0]['spec']['hostname']}.{service}"
    assert {variables_of(pod)["MASTER_ADDR"] for pod in three.pods} == {master}


def test_by_default_the_service_selects_only_the_master() -> None:
    three = GOLDEN["three"]
    assert three.service is not None
    selected = three.service["spec"]["selector"].items()
    assert [selected <= pod["metadata"]["labels"].items() for pod in three.pods] == [True, False, False]


@pytest.mark.parametrize("configured", [{}, {NAME: algorithm_of()}])
def test_a_removed_algorithm_cannot_be_launched(configured: dict[str, Algorithm]) -> None:
    with pytest.raises(LaunchFailed) as caught:
        pod_resolver(configured).completed(spec(algorithm=NAME))
    assert caught.value.diagnosis.category is Category.ALGORITHM_GONE


@pytest.mark.parametrize(
    ("the_job", "the_algorithm"),
    [
        (job_of(spec(algorithm=NAME, pod_options={"nproc_per_node": 2})), algorithm(command=())),
        (job_of(spec(algorithm=NAME, pod_options={"labels": {"training-service/rank": "1"}})), algorithm()),
    ],
)
def test_options_that_no_longer_fit_fail_the_launch_with_a_reason(
    the_job: Job, the_algorithm: Algorithm
) -> None:
    with pytest.raises(LaunchFailed) as caught:
        planned(the_job, the_algorithm)
    assert caught.value.diagnosis.category is Category.LAUNCH_FAILED
    assert caught.value.diagnosis.detail


def test_other_roles_have_their_own_names_commands_and_resources() -> None:
    recommender = algorithm_of(
        framework="tensorflow",
        roles={"ps": {"command": ("python", "-m", "serve"), "kubernetes": {"resources": {"memory": "64Gi"}}}},
        kubernetes={"image": "tf:1", "command": ("python",), "resources": {"nvidia.com/gpu": "1"}},
    )
    roles = {"master": 1, "worker": 1, "ps": 1}
    asked = job_of(
        spec(algorithm=NAME, instances=3, roles=roles, pod_options={"resources": {"nvidia.com/gpu": "2"}})
    )
    *trainers, server = planned(asked, recommender).pods
    assert server["metadata"]["name"] == f"{NAME}-1-2-ps"
    assert server["metadata"]["labels"]["training-service/role"] == "ps"
    assert training_of(server)["command"] == ["python", "-m", "serve"]
    assert training_of(server)["resources"]["limits"] == {"memory": "64Gi"}
    for pod in trainers:
        assert training_of(pod)["command"] == ["python"]
        assert training_of(pod)["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert [rank_of(pod) for pod in (*trainers, server)] == [0, 1, 2]


def test_a_restarted_rank_belongs_to_the_same_plan() -> None:
    elastic = job_of(spec(algorithm=NAME, instances=2, elastic=Elastic(min_instances=1)))
    once = planned(elastic)
    again = planned(
        replace(elastic, ranks=(RankStatus(0, Phase.RUNNING), RankStatus(1, Phase.PENDING, restarts=3)))
    )
    assert again.digest == once.digest
    assert [restarts_of(pod) for pod in again.pods] == [0, 3]
    assert again.pods[0] == once.pods[0]


def test_nothing_that_the_caller_of_a_program_sent_refers_to_a_variable() -> None:
    pod = planned_program().pods[0]
    assert training_of(pod)["command"] == ["python", "train.py", "$$(HOME)"]
    assert variables_of(pod)["MODE"] == "a $$(HOME)"


def test_requirements_are_installed_by_each_pod_in_its_own_home() -> None:
    pod = planned_program(requirements="$(HOME).txt").pods[0]
    command = [each.replace("$$", "$") for each in training_of(pod)["command"]]
    assert command[:4] == ["python3", "-I", "-S", "-c"]
    assert command[4] == Path(requirements_runner.__file__).read_text()
    options = json.loads(command[5])
    assert (options["root"], options["file"]) == ("/home/training/environments", "$(HOME).txt")
    assert options["link_mode"] == "hardlink", "the cache takes no further space in the volume"
    assert command[6:] == ["python", "train.py", "$(HOME)"]
    assert "$(HOME)" not in "".join(training_of(pod)["command"]).replace("$$(HOME)", "")
    assert violations(pod["spec"]) == []


def test_the_fetching_container_has_the_report_token_and_no_secret_of_the_training() -> None:
    pod = planned_program(
        FOR_PROGRAMS.model_copy(update={"fetch_image": "service:1", "token_secrets": True})
    ).pods[0]
    [fetching] = pod["spec"]["initContainers"]
    assert fetching["image"] == "service:1"
    assert [each["name"] for each in fetching["env"]] == ["REPORT_ADDRESS", "REPORT_TOKEN"]
    assert "secretKeyRef" in fetching["env"][1]["valueFrom"]
    assert "envFrom" not in fetching
    assert violations(pod["spec"]) == []


def test_only_the_image_of_the_operator_mounts_the_cache_of_programs() -> None:
    cached = KubernetesSettings.model_validate(
        {**FOR_PROGRAMS.model_dump(exclude_unset=True), "fetch_image": "service:1", "program_cache": "kept"}
    )
    for pod in planned_program(cached).pods:
        [fetching] = pod["spec"]["initContainers"]
        assert fetching["image"] == "service:1"
        assert fetching["command"][-3:] == ["/program-cache", "default", str(20 << 30)]
        assert {"name": "program-cache", "mountPath": "/program-cache"} in fetching["volumeMounts"]
        assert "program-cache" not in [mount["name"] for mount in training_of(pod)["volumeMounts"]]
        assert {
            "name": "program-cache",
            "persistentVolumeClaim": {"claimName": "kept"},
        } in pod["spec"]["volumes"]
        assert violations(pod["spec"]) == []


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"program_cache": "kept"}, "fetch_image: program_cache requires it"),
        (
            {
                "program_cache": "kept",
                "fetch_image": "service:1",
                "pod": {"volumes": [{"claim": "kept", "mount_path": "/kept"}]},
            },
            "kept is also in pod.volumes",
        ),
    ],
)
def test_no_image_of_a_program_can_mount_the_cache(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        KubernetesSettings.model_validate(settings)


def test_a_program_is_not_launched_without_an_address_to_fetch_it_from() -> None:
    with pytest.raises(LaunchFailed) as refused:
        planned_program(extra={"GROUP_TOKEN": "g"})
    assert "reports.address" in refused.value.diagnosis.resolution

"""Groups in requests: counts of roles, elastic ranges, processes, and the rules for them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from job_tracker.admission.admission import Admission, JobRequest
from job_tracker.admission.queues import OneQueue
from job_tracker.catalog import Dataset, FixedCatalog
from job_tracker.domain.caller import BUILT_IN
from job_tracker.domain.errors import InvalidField
from job_tracker.domain.job_spec import JobSpec
from job_tracker.domain.policies import Elastic
from job_tracker.store import specs
from tests.support.catalog import ALGORITHM, pod_resolver

PROCESS = {"command": ("python", "train.py")}
ALGORITHMS: Mapping[str, Mapping[str, Any]] = {
    "pytorch": {"process": PROCESS},
    "elastic": {"elastic": {"min_instances": 2}, "max_instances": 6},
    "tensorflow": {
        "framework": "tensorflow",
        "roles": {"evaluator": {"instances": 0}, "ps": {"instances": 0, "max_instances": 2}},
    },
    "lossy": {"max_lost": 2},
    "plain-tensorflow": {"framework": "tensorflow"},
    "jax": {"framework": "jax", "process": PROCESS},
    "many": {"kubernetes": {"image": "i:1", "command": ["c"], "nproc_per_node": 16}},
    "mpi": {"framework": "mpi", "roles": {"launcher": {}}},
    "image": {"kubernetes": {"image": "i:1", "resources": {"nvidia.com/gpu": "2"}, "command": ["c"]}},
}


async def accepted(
    storage: Path, algorithm: str, options: Mapping[str, Any] | None = None, **sent: str
) -> JobSpec:
    return await accepted_in(OneQueue(8), storage, algorithm, options, **sent)


async def accepted_in(
    queues: OneQueue,
    storage: Path,
    algorithm: str,
    options: Mapping[str, Any] | None = None,
    **sent: str,
) -> JobSpec:
    recipe = {"kubernetes": {"image": "i:1", "command": ["c"]}}
    algorithms = {name: ALGORITHM.model_validate({**recipe, **values}) for name, values in ALGORITHMS.items()}
    resolver = pod_resolver(algorithms)
    admission = Admission(
        FixedCatalog(
            algorithms, {"1": Dataset(uri=f"{storage}/versionedDatasets/{{dataset_id}}/{{version}}")}
        ),
        resolver,
        queues=queues,
        models_uri="/models",
        checkpoints_uri="/checkpoints",
    )
    request = JobRequest(algorithm=algorithm, dataset_id="1", dataset_version="v1", parameters=sent)
    return await admission.check(BUILT_IN, replace(request, pod_options=options or {}))


async def test_a_group_is_a_master_and_its_workers(storage: Path) -> None:
    made = await accepted(storage, "pytorch", PARALLEL_INSTANCES="3")
    assert made.group.role_of_ranks == ("master", "worker", "worker")
    assert (await accepted(storage, "pytorch")).group.role_of_ranks == ("master",)


async def test_other_roles_are_added_to_the_workers(storage: Path) -> None:
    made = await accepted(
        storage, "tensorflow", PARALLEL_INSTANCES="3", PS_INSTANCES="2", EVALUATOR_INSTANCES="1"
    )
    assert made.group.role_of_ranks == ("master", "worker", "worker", "ps", "ps", "evaluator")
    assert made.instances == 6
    assert made.group.ends_with_master
    assert specs.loaded(specs.dumped(made)) == made


async def test_an_evaluator_ends_by_itself(storage: Path) -> None:
    made = await accepted(storage, "tensorflow", PARALLEL_INSTANCES="2", EVALUATOR_INSTANCES="1")
    assert not made.group.ends_with_master


async def test_a_launcher_is_the_master_of_workers_alone(storage: Path) -> None:
    made = await accepted(storage, "mpi", PARALLEL_INSTANCES="2")
    assert made.group.role_of_ranks == ("launcher", "worker", "worker")


async def test_the_minimum_of_an_elastic_group_is_configured_or_requested(storage: Path) -> None:
    assert (await accepted(storage, "elastic", PARALLEL_INSTANCES="4")).group.elastic == Elastic(
        min_instances=2
    )
    assert (await accepted(storage, "elastic")).group.elastic == Elastic(min_instances=1)
    made = await accepted(storage, "elastic", PARALLEL_INSTANCES="4", MIN_INSTANCES="4")
    assert made.group.elastic == Elastic(min_instances=4)
    assert (await accepted(storage, "pytorch", PARALLEL_INSTANCES="4")).group.elastic is None


@pytest.mark.parametrize(
    ("algorithm", "sent", "complaint"),
    [
        ("pytorch", {"PARALLEL_INSTANCES": "0"}, r"parameters.PARALLEL_INSTANCES: '0' .*1"),
        ("pytorch", {"PARALLEL_INSTANCES": "9"}, r"parameters.PARALLEL_INSTANCES: '9' .*8"),
        ("pytorch", {"PARALLEL_INSTANCES": "auto"}, r"PARALLEL_INSTANCES: 'auto' .*at most 8; .trainctl"),
        ("pytorch", {"PS_INSTANCES": "1"}, r"parameters.PS_INSTANCES: .*pytorch has no such role"),
        ("jax", {"PS_INSTANCES": "1"}, r"parameters.PS_INSTANCES: .*jax has no such role"),
        ("jax", {"MIN_INSTANCES": "1"}, r"parameters.MIN_INSTANCES: .*not elastic"),
        (
            "jax",
            {"MAX_LOST_INSTANCES": "1"},
            r"parameters.MAX_LOST_INSTANCES: .*max_lost .* is 0",
        ),
        (
            "lossy",
            {"PARALLEL_INSTANCES": "8", "MAX_LOST_INSTANCES": "3"},
            r"parameters.MAX_LOST_INSTANCES: '3' .*at most 2",
        ),
        (
            "lossy",
            {"PARALLEL_INSTANCES": "2", "MAX_LOST_INSTANCES": "2"},
            r"parameters.MAX_LOST_INSTANCES: '2' .*at most 1",
        ),
        ("plain-tensorflow", {"PS_INSTANCES": "1"}, r"parameters.PS_INSTANCES: .*has no role ps"),
        ("tensorflow", {"PS_INSTANCES": "-1"}, r"parameters.PS_INSTANCES: '-1'"),
        ("tensorflow", {"PS_INSTANCES": "3", "PARALLEL_INSTANCES": "2"}, r"parameters.PS_INSTANCES: '3'.* 2"),
        (
            "tensorflow",
            {"PS_INSTANCES": "1"},
            r"PARALLEL_INSTANCES: 1 is not allowed with PS_INSTANCES 1.*at least 2",
        ),
        ("tensorflow", {"EVALUATOR_INSTANCES": "2"}, r"parameters.EVALUATOR_INSTANCES: '2'"),
        (
            "tensorflow",
            {"PS_INSTANCES": "2", "PARALLEL_INSTANCES": "7"},
            r"PARALLEL_INSTANCES: 7 with 2 of role ps makes 9 instances; .* capacity allows at most 8",
        ),
        ("mpi", {"PARALLEL_INSTANCES": "8"}, r"8 with 1 of role launcher makes 9"),
        ("mpi", {"LAUNCHER_INSTANCES": "2"}, r"parameters.LAUNCHER_INSTANCES: '2'"),
        (
            "elastic",
            {"PARALLEL_INSTANCES": "2", "MIN_INSTANCES": "3"},
            r"parameters.MIN_INSTANCES: 3 is not allowed: PARALLEL_INSTANCES is 2",
        ),
        ("elastic", {"MIN_INSTANCES": "0"}, r"parameters.MIN_INSTANCES: '0'"),
    ],
)
async def test_invalid_counts_are_refused_with_the_rule(
    storage: Path, algorithm: str, sent: Mapping[str, str], complaint: str
) -> None:
    with pytest.raises(InvalidField, match=complaint):
        await accepted(storage, algorithm, None, **sent)


@pytest.mark.parametrize(
    ("algorithm", "options", "complaint"),
    [
        ("image", {"nproc_per_node": 4}, "nproc_per_node: 4 is not allowed: each instance has 2 GPUs"),
        (
            "image",
            {"nproc_per_node": 2, "resources": {"nvidia.com/gpu": "1"}},
            "nproc_per_node: 2 is not allowed: each instance has 1 GPU",
        ),
        ("jax", {"nproc_per_node": 2}, "framework jax starts one process in each instance"),
    ],
)
async def test_processes_that_do_not_fit_are_refused(
    storage: Path, algorithm: str, options: Mapping[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidField, match=complaint):
        await accepted(storage, algorithm, options)


async def test_processes_that_fit_are_kept(storage: Path) -> None:
    assert (await accepted(storage, "image", {"nproc_per_node": 2})).group.trainers.processes == 2
    assert (await accepted(storage, "pytorch", {"nproc_per_node": 4})).group.trainers.processes == 4


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"framework": "caffe"}, "'caffe' is not a framework; allowed: horovod, jax, mpi, pytorch"),
        (
            {"framework": "jax", "roles": {"ps": {}}},
            "roles.ps: framework jax has no such role; allowed: none",
        ),
        (
            {"framework": "tensorflow", "roles": {"chief": {"instances": 0}}},
            "roles.chief: framework tensorflow has no such role; allowed: ps, evaluator",
        ),
        ({"framework": "tensorflow", "roles": {"evaluator": {"instances": 2}}}, "allows at most 1 instance"),
        (
            {"framework": "tensorflow", "roles": {"ps": {"instances": 3, "max_instances": 2}}},
            "roles.ps.instances: 3 is not allowed: max_instances is 2",
        ),
        (
            {"framework": "tensorflow", "elastic": {}},
            "framework tensorflow does not support it; allowed: pytorch",
        ),
        (
            {"elastic": {}, "max_lost": 1},
            "max_lost: 1 is not allowed with elastic",
        ),
        (
            {"elastic": {"min_instances": 3}, "max_instances": 2},
            "min_instances: 3 is not allowed: max_instances is 2",
        ),
        (
            {"framework": "jax", "process": {**PROCESS, "nproc_per_node": 2}},
            "starts one process in each instance",
        ),
        ({"parameters": {"PS_INSTANCES": {}}}, "'PS_INSTANCES' is a reserved name"),
    ],
)
def test_a_configuration_that_the_framework_does_not_support_is_refused(
    values: Mapping[str, Any], complaint: str
) -> None:
    with pytest.raises(ValidationError, match=complaint):
        ALGORITHM.model_validate(values)


@pytest.mark.parametrize(
    ("algorithm", "options", "sent", "complaint"),
    [
        (
            "pytorch",
            {"nproc_per_node": 256},
            {"PARALLEL_INSTANCES": "3"},
            r"^pod_options.nproc_per_node: 256 in each of 3 instances makes 768 training processes; a job "
            r"may have at most 64 \(scheduling.max_processes\): ask for fewer processes or instances$",
        ),
        ("pytorch", {"nproc_per_node": 65}, {}, "65 in each of 1 instances makes 65 training processes"),
        (
            "many",
            {},
            {"PARALLEL_INSTANCES": "5"},
            "^parameters.PARALLEL_INSTANCES: 5 instances of 16 processes each make 80 training processes; ",
        ),
        ("many", {"resources": {"cpu": "1"}}, {"PARALLEL_INSTANCES": "5"}, "^parameters.PARALLEL_INSTANCES"),
    ],
)
async def test_a_job_with_too_many_processes_is_refused(
    storage: Path, algorithm: str, options: Mapping[str, Any], sent: Mapping[str, str], complaint: str
) -> None:
    with pytest.raises(InvalidField, match=complaint):
        await accepted(storage, algorithm, options, **sent)


async def test_a_job_says_how_many_instances_its_group_may_lose(storage: Path) -> None:
    made = await accepted(storage, "lossy", PARALLEL_INSTANCES="4", MAX_LOST_INSTANCES="2")
    assert made.group.max_lost == 2
    assert specs.loaded(specs.dumped(made)) == made
    assert (await accepted(storage, "lossy", PARALLEL_INSTANCES="4")).group.max_lost == 0


async def test_a_job_may_have_the_maximum_of_processes(storage: Path) -> None:
    made = await accepted(storage, "pytorch", {"nproc_per_node": 8}, PARALLEL_INSTANCES="8")
    assert made.instances == 8
    assert (await accepted(storage, "many", PARALLEL_INSTANCES="4")).instances == 4
    # The launcher itself is not a training process.
    made = await accepted(storage, "mpi", {"nproc_per_node": 16}, PARALLEL_INSTANCES="4")
    assert made.instances == 5


async def test_the_maximum_follows_the_capacity(storage: Path) -> None:
    queues = OneQueue(4)
    with pytest.raises(InvalidField, match=r"PARALLEL_INSTANCES: .* at most 4"):
        await accepted_in(queues, storage, "pytorch", PARALLEL_INSTANCES="5")
    queues.tree = OneQueue(5).tree
    made = await accepted_in(queues, storage, "pytorch", {"nproc_per_node": 8}, PARALLEL_INSTANCES="5")
    assert made.instances == 5
    with pytest.raises(InvalidField, match="a job may have at most 40 "):
        await accepted_in(queues, storage, "pytorch", {"nproc_per_node": 9}, PARALLEL_INSTANCES="5")

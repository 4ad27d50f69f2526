"""Jobs and algorithms whose plans contain every possible field."""

from collections.abc import Mapping
from typing import Any

from job_tracker.backends.kubernetes.options import KubernetesRecipe, PodOptions
from job_tracker.backends.kubernetes.plan import KubernetesPlan, plan
from job_tracker.backends.kubernetes.plugin import KubernetesPlugin
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.catalog import Algorithm
from job_tracker.domain.group import InstanceOptions
from job_tracker.domain.job import Job
from tests.support.catalog import algorithm_of, resolved
from tests.support.jobs import job, job_of, spec
from tests.support.programs import program_job

NAME = "intent-classification"
COMMAND = ("python", "-m", "intent_classification.train")


def recipe(**options: Any) -> KubernetesRecipe:
    return KubernetesRecipe(**{"image": "intent-classification:0.1.0", "command": COMMAND, **options})


def algorithm(**options: Any) -> Algorithm:
    made: Algorithm = algorithm_of(free_parameters=True, kubernetes=recipe(**options))
    return made


def planned(
    the_job: Job | None = None, the_algorithm: Algorithm | None = None, pod: PodOptions | None = None
) -> KubernetesPlan:
    settings = KubernetesSettings(namespace="training", instance="ours", pod=pod or PodOptions())
    the_job = the_job or job(algorithm=NAME)
    algorithms = {the_job.spec.algorithm: the_algorithm or algorithm()}
    return plan(resolved(the_job, algorithms, "kubernetes", KubernetesPlugin(settings)), settings)


def variables_of(pod: Any) -> dict[str, Any]:
    """Return the variables of the training container, by name.

    A value from a source, such as a Secret, is an object.
    """
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in training_of(pod)["env"]}


def training_of(pod: Any) -> Any:
    (container,) = [each for each in pod["spec"]["containers"] if each["name"] == "training"]
    return container


FOR_ALL = PodOptions.model_validate(
    {
        "image_pull_policy": "IfNotPresent",
        "image_pull_secrets": ["registry-login"],
        "resources": {"cpu": 1, "memory": "2Gi"},
        "node_selector": {"kubernetes.io/arch": "amd64", "pool": "training"},
        "tolerations": [{"key": "training", "operator": "Exists", "effect": "NoSchedule"}],
        "priority_class": "batch",
        "run_as_user": 10001,
        "fs_group": 10001,
        "volumes": [{"claim": "datasets.v1", "mount_path": "/storage", "read_only": True}],
        "secret_environment": {"AWS_SECRET_ACCESS_KEY": {"secret": "storage", "key": "secret-key"}},
        "secrets": ["proxy"],
        "labels": {"team": "ml"},
        "annotations": {"example.com/cost-centre": "42"},
    }
)
OF_ALGORITHM: dict[str, Any] = {
    "resources": {"memory": "4Gi", "nvidia.com/gpu": 2},
    "node_selector": {"pool": "gpu"},
    "tolerations": [
        {"key": "nvidia.com/gpu", "value": "yes", "effect": "NoExecute", "toleration_seconds": 0}
    ],
    "runtime_class": "nvidia",
    "service_account": "trainer",
    "shm_size": "8Gi",
    "working_directory": "/app",
    "volumes": [
        {"claim": "results", "mount_path": "/storage/models", "sub_path": "models"},
        {"claim": "results", "mount_path": "/storage/checkpoints", "sub_path": "checkpoints"},
    ],
    "pod_template": {
        "metadata": {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}},
        "spec": {
            "activeDeadlineSeconds": 86400,
            "containers": [
                {"name": "training", "env": [{"name": "NCCL_DEBUG", "value": "INFO"}]},
                {"name": "exporter", "image": "exporter:1"},
            ],
        },
    },
}
OF_REQUEST = {
    "resources": {"cpu": "8"},
    "nproc_per_node": 2,
    "labels": {"experiment": "a7"},
    "tolerations": [{"key": "spot", "operator": "Exists"}],
}
EVERYTHING = planned(
    job_of(
        spec(
            {"EPOCHS": "15", "NOTE": "costs $(AWS_SECRET_ACCESS_KEY) or $$5"},
            algorithm=NAME,
            instances=2,
            data_uri="s3://bucket/versionedDatasets/1/v1",
            pod_options=OF_REQUEST,
        ),
        job_id=7,
        attempt=2,
    ),
    algorithm(**OF_ALGORITHM),
    FOR_ALL,
)

TREE = "0123456789abcdef" * 4
FOR_PROGRAMS = KubernetesSettings(
    namespace="training", instance="ours", pod=FOR_ALL, program_image="registry.example.com/team:1"
)
TOKENS = {"GROUP_TOKEN": "g", "REPORT_TOKEN": "7.2.token", "REPORT_ADDRESS": "training-service:51002"}


def planned_program(
    settings: KubernetesSettings = FOR_PROGRAMS, extra: Mapping[str, str] = TOKENS, **changes: Any
) -> KubernetesPlan:
    """Return the plan of a job that runs an uploaded program."""
    values: dict[str, Any] = {"environment": {"MODE": "a $(HOME)"}, "job_id": 7, "attempt": 2, **changes}
    command = ("python", "train.py", "$(HOME)")
    return plan(
        program_job(KubernetesPlugin(settings), "kubernetes", TREE, *command, **values), settings, extra
    )


GOLDEN = {
    "one": planned(job({"EPOCHS": "15"}, algorithm=NAME)),
    "three": planned(job({"EPOCHS": "15"}, algorithm=NAME, instances=3)),
    "everything": EVERYTHING,
    "program": planned_program(
        instances=2,
        options=InstanceOptions(resources={"memory": "4Gi", "nvidia.com/gpu": "2"}, nproc_per_node=2),
    ),
}


def objects_of(the_plan: KubernetesPlan) -> list[Any]:
    return [*([the_plan.service] if the_plan.service else []), *the_plan.pods]

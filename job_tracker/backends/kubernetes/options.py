"""Options of pods, and the options of algorithms that run in pods."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from job_tracker.backends.kubernetes import strategic_merge
from job_tracker.backends.shared.instances import HOME, SHARED_MEMORY, TEMPORARY
from job_tracker.catalog.requested import RequestedPodOptions
from job_tracker.catalog.syntax import (
    CPU,
    AbsolutePath,
    Bytes,
    EnvironmentName,
    Image,
    ObjectName,
    RelativePath,
    SecretKey,
    is_key_of_service,
)
from job_tracker.common.config import Config
from job_tracker.frameworks.reserved_names import is_set_by_service

CONTAINER = "training"
_IDENTITY = {"service_account", "runtime_class", "run_as_user", "run_as_group", "fs_group"}


class SecretValue(Config):
    """One entry of a Secret."""

    secret: ObjectName
    key: SecretKey


class VolumeMount(Config):
    """A PersistentVolumeClaim, or a folder of it, mounted into the training container."""

    claim: ObjectName
    mount_path: AbsolutePath
    sub_path: RelativePath | None = None
    read_only: bool = False


class PodOptions(RequestedPodOptions):
    """Pod options that configuration may set, for all algorithms or for one."""

    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secrets: tuple[ObjectName, ...] = ()
    limit_cpu: bool = Field(
        default=True, description="whether the requested cpu is also the limit, even on an idle node"
    )
    shm_size: Bytes = Field(default="1Gi", description=f"largest size of {SHARED_MEMORY}, which uses memory")
    scratch_size: Bytes = Field(
        default="10Gi", description=f"largest size of {HOME} and of {TEMPORARY}, each on the node's disk"
    )
    runtime_class: ObjectName | None = None
    service_account: ObjectName | None = Field(
        default=None, description="service account of the pods; its token is never mounted"
    )
    run_as_user: int | None = Field(
        default=None, ge=1, description="numeric user; none: the image's user, which must not be root"
    )
    run_as_group: int | None = Field(
        default=None, ge=1, description="numeric group; none: run_as_user if set, otherwise the image's group"
    )
    fs_group: int | None = Field(default=None, ge=1, description="group that can write to the volumes")
    working_directory: AbsolutePath | None = None
    volumes: tuple[VolumeMount, ...] = Field(
        default=(), description="claims with datasets, models and checkpoints, mounted below storage.uri"
    )
    secret_environment: dict[EnvironmentName, SecretValue] = Field(
        default={}, description="variables whose values are in Secrets, such as storage credentials"
    )
    secrets: tuple[ObjectName, ...] = Field(
        default=(), description="Secrets whose entries all become variables"
    )

    @model_validator(mode="after")
    def _mounts_are_apart(self) -> "PodOptions":
        taken = {HOME, TEMPORARY, SHARED_MEMORY}
        for volume in self.volumes:
            if volume.mount_path in taken:
                raise ValueError(
                    f"volumes: {volume.mount_path} is used already; mount each volume at its own path"
                )
            taken.add(volume.mount_path)
        return self

    @property
    def identity(self) -> "PodOptions":
        """The options that set the pods' identity. The operator's changes also apply to queued jobs."""
        return PodOptions.model_validate(self.model_dump(exclude_unset=True, include=_IDENTITY))

    @property
    def without_identity(self) -> "PodOptions":
        """The other options. They are resolved when a job is accepted."""
        return PodOptions.model_validate(self.model_dump(exclude_unset=True, exclude=_IDENTITY))

    @property
    def cpu_limit(self) -> str | None:
        """The most cpu that an instance can use; None if unknown."""
        return self.resources.get(CPU) if self.limit_cpu else None


class FrozenPod(PodOptions):
    """The pods of one role as the job stores them: resolved options and the algorithm's overlay."""

    pod_template: dict[str, Any] = Field(default={})

    @classmethod
    def of(cls, options: PodOptions, pod_template: Mapping[str, Any]) -> "FrozenPod":
        """Combine options with an overlay, which the configuration has validated."""
        template = {"pod_template": pod_template} if pod_template else {}
        return cls.model_validate({**options.model_dump(exclude_unset=True), **template})


class KubernetesRecipe(PodOptions):
    """The configuration of an algorithm that runs as pods: image, command and pod options."""

    image: Image
    command: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), description="the program and its arguments, without a shell; none: the image's command"
    )
    pod_template: dict[str, Any] = Field(
        default={}, description="an overlay (strategic merge) on the pod, for fields without an option"
    )

    @model_validator(mode="after")
    def _torchrun_has_a_command(self) -> "KubernetesRecipe":
        if self.nproc_per_node > 1 and not self.command:
            raise ValueError("nproc_per_node is above 1, so torchrun needs a command to start; set command")
        return self

    @model_validator(mode="after")
    def _overlay_leaves_service_fields(self) -> "KubernetesRecipe":
        try:
            problem = _overlay_problem(strategic_merge.merged(_SAMPLE_POD, self.pod_template))
        except strategic_merge.OverlayError as error:
            raise ValueError(f"pod_template.{error}") from error
        except (AttributeError, KeyError, TypeError) as error:  # a string in place of an object, for example
            raise ValueError("pod_template does not have the structure of a pod") from error
        if problem is not None:
            raise ValueError(f"pod_template.{problem}")
        return self


# A pod with all fields that an overlay must not change. Merging the overlay into it shows violations.
_SAMPLE_POD: dict[str, Any] = {
    "metadata": {"labels": {}, "annotations": {}},
    "spec": {
        "restartPolicy": "Never",
        "hostname": "a",
        "subdomain": "b",
        "containers": [{"name": CONTAINER, "image": "c", "env": [{"name": "RANK", "value": "0"}]}],
    },
}


def _overlay_problem(after: Mapping[str, Any]) -> str | None:
    """Return the error if the overlay changed a field of the service."""
    if unknown := after.keys() - _SAMPLE_POD.keys():
        return f"{min(unknown)}: unknown key; only metadata and spec are allowed"
    metadata, spec = after.get("metadata", {}), after.get("spec", {})
    if unknown := metadata.keys() - {"labels", "annotations"}:
        return f"metadata.{min(unknown)}: unknown key; only labels and annotations are allowed"
    for kind in ("labels", "annotations"):
        for key in metadata.get(kind, {}).keys():  # noqa: SIM118  # fails unless it is an object
            if is_key_of_service(str(key)):
                return f"metadata.{kind}.{key}: the service sets this key; remove it"
    for name in ("restartPolicy", "hostname", "subdomain"):
        if spec.get(name) != _SAMPLE_POD["spec"][name]:
            return f"spec.{name}: the service sets this field; remove it"
    training = next((each for each in spec.get("containers", ()) if each["name"] == CONTAINER), None)
    if training is None or training.get("image") != "c":
        return f"spec.containers: container {CONTAINER!r} must stay, with its image from the recipe"
    names = [variable["name"] for variable in training.get("env", ())]
    if "RANK" not in names or training["env"][names.index("RANK")] != {"name": "RANK", "value": "0"}:
        return "spec.containers: the variables that the service sets must stay unchanged"
    for name in names[1:]:
        if is_set_by_service(name):
            return f"spec.containers: the service sets variable {name}; remove it"
    return None

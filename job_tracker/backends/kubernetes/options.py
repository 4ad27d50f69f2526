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

    secret: ObjectName = Field(description="Name of the Secret, in the namespace of the pods.")
    key: SecretKey = Field(description="Key of the entry in the Secret.")


class VolumeMount(Config):
    """A PersistentVolumeClaim, or a folder of it, mounted into the training container."""

    claim: ObjectName = Field(description="Name of the PersistentVolumeClaim.")
    mount_path: AbsolutePath = Field(description="Absolute path in the container.")
    sub_path: RelativePath | None = Field(
        default=None, description="Folder in the volume that is mounted. Unset: the whole volume."
    )
    read_only: bool = Field(default=False, description="Mount the volume without write access.")


class PodOptions(RequestedPodOptions):
    """Options of pods, for all algorithms or for one algorithm."""

    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None, description="When nodes pull the image. Unset: the default of Kubernetes for the tag."
    )
    image_pull_secrets: tuple[ObjectName, ...] = Field(
        default=(), description="Names of Secrets with credentials for the registry of the image."
    )
    limit_cpu: bool = Field(
        default=True,
        description="Limit an instance to the cpu that it requests. If false, the instance may use idle cpu "
        "of the node, too.",
    )
    shm_size: Bytes = Field(
        default="1Gi", description=f"Size of {SHARED_MEMORY}, such as 1Gi. It uses memory."
    )
    scratch_size: Bytes = Field(
        default="10Gi",
        description=f"Size of {HOME} and of {TEMPORARY}, such as 10Gi, on the disk of the node.",
    )
    runtime_class: ObjectName | None = Field(
        default=None, description="RuntimeClass of the pods. Unset: the cluster's default."
    )
    service_account: ObjectName | None = Field(
        default=None,
        description="ServiceAccount of the pods. Unset: `default`. Its token is never mounted.",
    )
    run_as_user: int | None = Field(
        default=None,
        ge=1,
        description="User id of the processes. Unset: the user of the image, which must not be root.",
    )
    run_as_group: int | None = Field(
        default=None,
        ge=1,
        description="Group id of the processes. Unset: the number in `run_as_user`. Without `run_as_user`: "
        "the group of the image.",
    )
    fs_group: int | None = Field(
        default=None,
        ge=1,
        description="Group id that may write to the volumes. Unset: the group of the volumes is not changed.",
    )
    working_directory: AbsolutePath | None = Field(
        default=None, description="Absolute path in the container. Unset: the working directory of the image."
    )
    volumes: tuple[VolumeMount, ...] = Field(
        default=(),
        description="Claims with datasets, models and checkpoints. If `storage.uri` is a folder, mount the "
        "folder at the same path in the pods.",
    )
    secret_environment: dict[EnvironmentName, SecretValue] = Field(
        default={},
        description="Environment variables, by name, whose values are in Secrets, such as the credentials "
        "for the storage.",
    )
    secrets: tuple[ObjectName, ...] = Field(
        default=(),
        description="Names of Secrets. Every entry of these Secrets becomes an environment variable.",
    )

    @model_validator(mode="after")
    def _mounts_are_apart(self) -> "PodOptions":
        taken = {HOME, TEMPORARY, SHARED_MEMORY}
        for volume in self.volumes:
            if volume.mount_path in taken:
                raise ValueError(
                    f"volumes: {volume.mount_path} is already used; mount each volume at its own path"
                )
            taken.add(volume.mount_path)
        return self

    @property
    def identity(self) -> "PodOptions":
        """The options that set the identity of pods, such as their user.

        If the operator changes these options, the changes also apply to queued jobs.
        """
        return PodOptions.model_validate(self.model_dump(exclude_unset=True, include=_IDENTITY))

    @property
    def without_identity(self) -> "PodOptions":
        """The options that are not in `identity`. They are resolved when a job is accepted."""
        return PodOptions.model_validate(self.model_dump(exclude_unset=True, exclude=_IDENTITY))

    @property
    def cpu_limit(self) -> str | None:
        """The largest amount of cpu that an instance can use; None if it is not limited or not known."""
        return self.resources.get(CPU) if self.limit_cpu else None


class FrozenPod(PodOptions):
    """The pods of one role as the job stores them: resolved options and the algorithm's overlay."""

    pod_template: dict[str, Any] = Field(default={})

    @classmethod
    def of(cls, options: PodOptions, pod_template: Mapping[str, Any]) -> "FrozenPod":
        """Return the options together with an overlay, which the configuration has validated."""
        template = {"pod_template": pod_template} if pod_template else {}
        return cls.model_validate({**options.model_dump(exclude_unset=True), **template})


class KubernetesRecipe(PodOptions):
    """The configuration of an algorithm that runs as pods: image, command and pod options."""

    image: Image = Field(description="Image of the training code: [REGISTRY/]PATH[:TAG][@sha256:DIGEST].")
    command: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="Program and arguments, run without a shell. Unset: the command of the image.",
    )
    pod_template: dict[str, Any] = Field(
        default={},
        description="Patch (a strategic merge patch) that is applied to each pod last, for fields that no "
        "option sets.",
    )

    @model_validator(mode="after")
    def _torchrun_has_a_command(self) -> "KubernetesRecipe":
        if self.nproc_per_node > 1 and not self.command:
            raise ValueError(
                "nproc_per_node is above 1, so the framework's launcher needs a command to start; set command"
            )
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
    """Return the error if the overlay has changed a field that belongs to the service; None if it has not.

    `after` is the sample pod after the overlay was merged into it.
    """
    if unknown := after.keys() - _SAMPLE_POD.keys():
        return f"{min(unknown)}: unknown key; only metadata and spec are allowed"
    metadata, spec = after.get("metadata", {}), after.get("spec", {})
    if unknown := metadata.keys() - {"labels", "annotations"}:
        return f"metadata.{min(unknown)}: unknown key; only labels and annotations are allowed"
    for kind in ("labels", "annotations"):
        for key in metadata.get(kind, {}).keys():  # noqa: SIM118  # fails unless the value is an object
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

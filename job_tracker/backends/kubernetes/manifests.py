"""Builds the API objects of a group, with a function for each kind of object.

The functions are pure, except that `fetch_container` reads the text of fetch_program.py.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from job_tracker.backends.kubernetes.options import CONTAINER, PodOptions
from job_tracker.backends.kubernetes.placement import bound
from job_tracker.backends.kubernetes.strategic_merge import merged
from job_tracker.backends.shared.instances import HOME, SHARED_MEMORY, TEMPORARY, WORK
from job_tracker.backends.shared.labels import (
    ALGORITHM,
    ATTEMPT,
    FLAVOR,
    INSTANCE,
    INSTANCES,
    JOB_ID,
    MANAGED_BY,
    NAME,
    NODE,
    PLAN_DIGEST,
    PROGRAM_TREE,
    RANK,
    SUBMITTED_AT,
    group_annotations,
    group_labels,
    rank_labels,
)
from job_tracker.catalog.requested import Toleration
from job_tracker.catalog.syntax import CPU
from job_tracker.domain.group import MASTER_RANK
from job_tracker.domain.job import Job

FETCH = "fetch-program"
"""The name of the init container that fetches the files of an uploaded program."""
_CACHE, _CACHE_PATH = "program-cache", "/program-cache"
_PORT_NAME = "master"
_DIGEST_LENGTH = 16
MEMORY = "memory"
# The labels that together identify a group.
_OF_GROUP = (MANAGED_BY, INSTANCE, JOB_ID, ATTEMPT)
_ANNOTATED = (ALGORITHM, INSTANCES, SUBMITTED_AT, PLAN_DIGEST, PROGRAM_TREE)
_RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


def service(
    job: Job, name: str, namespace: str, instance: str, port: int, *, every_rank: bool
) -> dict[str, Any]:
    """Build the headless Service that resolves the master's name, or all pods' names with `every_rank`.

    The Service includes pods that are not ready. Otherwise, a worker that looks up the name of a starting
    master would get a negative answer, which resolvers would cache.
    """
    labels = group_labels(job, instance)
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": labels,
        "annotations": group_annotations(job),
    }
    return _service(metadata, labels, port, every_rank=every_rank)


def pod_group_metadata(job: Job, namespace: str, instance: str) -> dict[str, Any]:
    """Return the metadata of the object that describes the job's group to the cluster's gang scheduler."""
    return {
        "name": job.group.name,
        "namespace": namespace,
        "labels": group_labels(job, instance),
        "annotations": group_annotations(job),
    }


def service_of(master: Mapping[str, Any], port: int) -> dict[str, Any]:
    """Return the Service of a launched group, rebuilt from its master pod.

    `port` is used if the master pod has no variable MASTER_PORT. The Service resolves the names of all pods
    if a variable of the master pod contains the pod's own DNS name, POD.SERVICE.
    """
    of_master, name = master["metadata"], master["spec"]["subdomain"]
    labels, annotations = of_master["labels"], of_master["annotations"]
    training = next(each for each in master["spec"]["containers"] if each["name"] == CONTAINER)
    variables = {each["name"]: each.get("value", "") for each in training.get("env", ())}
    metadata = {
        "name": name,
        "namespace": of_master["namespace"],
        "labels": {key: labels[key] for key in (*_OF_GROUP, NAME) if key in labels},
        "annotations": {key: annotations[key] for key in _ANNOTATED if key in annotations},
    }
    every_rank = any(f"{of_master['name']}.{name}" in value for value in variables.values())
    return _service(metadata, labels, int(variables.get("MASTER_PORT", port)), every_rank=every_rank)


def token_secret(job: Job, namespace: str, instance: str, tokens: Mapping[str, str]) -> dict[str, Any]:
    """Build the Secret for an attempt's tokens.

    Its name contains a digest of the tokens. The service has no right to read Secrets, so it relies on
    the name: a Secret with this name has the same content.
    """
    text = json.dumps(tokens, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": f"{job.group.name}-{digest}",
            "namespace": namespace,
            "labels": group_labels(job, instance),
            "annotations": group_annotations(job),
        },
        "immutable": True,  # so that kubelets need not watch the Secret
        "type": "Opaque",
        "stringData": dict(tokens),
    }


def token_variables(secret: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the variables that refer to the attempt's Secret."""
    name = secret["metadata"]["name"]
    return [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}
        for key in secret["stringData"]
    ]


def _service(
    metadata: dict[str, Any], labels: Mapping[str, str], port: int, *, every_rank: bool
) -> dict[str, Any]:
    of_group = {key: labels[key] for key in _OF_GROUP}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": of_group if every_rank else {**of_group, RANK: str(MASTER_RANK)},
            "ports": [{"name": _PORT_NAME, "port": port, "targetPort": port, "protocol": "TCP"}],
        },
    }


def pod(
    job: Job,
    rank: int,
    role: str,
    *,
    name: str,
    namespace: str,
    instance: str,
    subdomain: str | None,
    image: str,
    command: Sequence[str],
    environment: Sequence[Mapping[str, Any]],
    grace_seconds: int,
    options: PodOptions,
    overlay: Mapping[str, Any],
    affinity: Mapping[str, Any],
    fetch: Mapping[str, Any] | None = None,
    program_cache: str | None = None,
    place: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """Build the pod of one rank.

    `overlay` is merged into the pod. It cannot change the pod's name, `place`, or the labels and annotations
    that this service sets. `place` is the flavor and the node that the scheduler has chosen. `fetch` is the
    init container that fetches the files of an uploaded program. `program_cache` names the
    PersistentVolumeClaim in which this container caches the files. No other container of the pod mounts it.
    """
    training = {
        "name": CONTAINER,
        "image": image,
        **_present("imagePullPolicy", options.image_pull_policy),
        **_present("command", list(command)),
        **_present("workingDir", WORK if fetch else options.working_directory),
        "env": [dict(variable) for variable in environment],
        **_present("envFrom", [{"secretRef": {"name": secret}} for secret in options.secrets]),
        **_present("resources", _resources(options)),
        "volumeMounts": _mounts(options),
        # The end of the log serves as evidence if the program leaves no termination message.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": _RESTRICTED,
    }
    base = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": dict(options.labels), "annotations": dict(options.annotations)},
        "spec": {
            "restartPolicy": "Never",  # other ranks would wait for a restarted rank for ever
            "hostname": name,
            **_present("subdomain", subdomain),
            "terminationGracePeriodSeconds": grace_seconds,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
                **_present("runAsUser", options.run_as_user),
                **_present("runAsGroup", options.run_as_group or options.run_as_user),
                **_present("fsGroup", options.fs_group),
                # By default, each mount of a volume changes the owner of all files on the volume again.
                **_present("fsGroupChangePolicy", "OnRootMismatch" if options.fs_group else None),
            },
            **_present("serviceAccountName", options.service_account),
            **_present("priorityClassName", options.priority_class),
            **_present("runtimeClassName", options.runtime_class),
            **_present("imagePullSecrets", [{"name": secret} for secret in options.image_pull_secrets]),
            **_present("nodeSelector", dict(options.node_selector)),
            **_present("tolerations", [_toleration(each) for each in options.tolerations]),
            **_present("affinity", affinity),
            **_present("initContainers", [fetch] if fetch else []),
            "containers": [training],
            "volumes": _volumes(options, program_cache),
        },
    }
    whole = merged(base, overlay)
    chosen: dict[str, str] = {}
    if place is not None:
        whole["spec"]["affinity"] = bound(whole["spec"].get("affinity") or {}, place[1])
        chosen = {FLAVOR: place[0], NODE: place[1]}
    metadata = whole.get("metadata", {})
    whole["metadata"] = {
        "name": name,
        "namespace": namespace,
        "labels": {
            **metadata.get("labels", {}),
            **group_labels(job, instance),
            **rank_labels(rank, role),
        },
        "annotations": {**metadata.get("annotations", {}), **group_annotations(job), **chosen},
    }
    return whole


def fetch_container(
    tree: str,
    *,
    image: str,
    environment: Sequence[Mapping[str, Any]],
    options: PodOptions,
    cached: tuple[str, int] | None = None,
) -> dict[str, Any]:
    """Build the init container that fetches a tree into the working directory of the training container.

    This container does not request more than the training container, and it has no devices. So the pod needs
    no additional resources. `cached` has the project whose files are cached (see `program_cache` of `pod`),
    and the size limit of the whole cache in bytes.
    """
    cache = [_CACHE_PATH, cached[0], str(cached[1])] if cached else []
    text = Path(__file__).with_name("fetch_program.py").read_text()
    plain = {name: amount for name, amount in options.resources.items() if name in (CPU, MEMORY)}
    return {
        "name": FETCH,
        "image": image,
        **_present("imagePullPolicy", options.image_pull_policy),
        "command": ["python3", "-c", *literal((text, WORK, tree, *cache))],
        "workingDir": HOME,
        "env": [dict(variable) for variable in environment],
        **_present("resources", _resources(options.model_copy(update={"resources": plain}))),
        "volumeMounts": [
            {"name": "home", "mountPath": HOME},
            {"name": "tmp", "mountPath": TEMPORARY},
            *([{"name": _CACHE, "mountPath": _CACHE_PATH}] if cached else ()),
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": _RESTRICTED,
    }


def literal(command: Sequence[str]) -> list[str]:
    """Return the command, escaped so that Kubernetes replaces nothing in it: see `variables`."""
    return [argument.replace("$", "$$") for argument in command]


def variables(plain: Mapping[str, str]) -> list[dict[str, Any]]:
    """Build `env` entries with plain values.

    Kubernetes replaces $(NAME) in a value by the value of the variable NAME, which may be a secret that users
    must not read. Therefore each $ is escaped as $$.
    """
    return [{"name": name, "value": value.replace("$", "$$")} for name, value in plain.items()]


def secret_variables(options: PodOptions) -> list[dict[str, Any]]:
    """Return the variables whose values are in Secrets."""
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": value.secret, "key": value.key}}}
        for name, value in options.secret_environment.items()
    ]


def labels_of_group(job: Job, instance: str) -> dict[str, str]:
    """Return the labels that together select the pods of the job's group."""
    labels = group_labels(job, instance)
    return {key: labels[key] for key in _OF_GROUP}


def _resources(options: PodOptions) -> dict[str, Any]:
    requests = dict(options.resources)
    limits = {name: amount for name, amount in requests.items() if name != CPU or options.limit_cpu}
    return {**_present("requests", requests), **_present("limits", limits)}


def _toleration(toleration: Toleration) -> dict[str, Any]:
    return {
        **_present("key", toleration.key),
        "operator": toleration.operator,
        **_present("value", toleration.value),
        **_present("effect", toleration.effect),
        **(
            {"tolerationSeconds": toleration.toleration_seconds}
            if toleration.toleration_seconds is not None
            else {}
        ),
    }


def _claims(options: PodOptions) -> dict[str, str]:
    """Return a name of a volume for each PersistentVolumeClaim.

    The claim's own name may be invalid as a name of a volume.
    """
    claims = dict.fromkeys(volume.claim for volume in options.volumes)
    return {claim: f"claim-{number}" for number, claim in enumerate(claims)}


def _volumes(options: PodOptions, program_cache: str | None) -> list[dict[str, Any]]:
    mounted = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim}}
        for claim, name in _claims(options).items()
    ]
    return [
        {"name": "home", "emptyDir": {"sizeLimit": options.scratch_size}},
        {"name": "tmp", "emptyDir": {"sizeLimit": options.scratch_size}},
        # Data loaders pass batches through shared memory. The usual default of 64 MiB is too small.
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": options.shm_size}},
        *mounted,
        *([{"name": _CACHE, "persistentVolumeClaim": {"claimName": program_cache}}] if program_cache else ()),
    ]


def _mounts(options: PodOptions) -> list[dict[str, Any]]:
    names = _claims(options)
    return [
        {"name": "home", "mountPath": HOME},
        {"name": "tmp", "mountPath": TEMPORARY},
        {"name": "shm", "mountPath": SHARED_MEMORY},
        *(
            {
                "name": names[volume.claim],
                "mountPath": volume.mount_path,
                **_present("subPath", volume.sub_path),
                **_present("readOnly", volume.read_only),
            }
            for volume in options.volumes
        ),
    ]


def _present(key: str, value: Any) -> dict[str, Any]:
    """Return a dictionary with the entry; an empty one if the value is empty."""
    return {key: value} if value else {}

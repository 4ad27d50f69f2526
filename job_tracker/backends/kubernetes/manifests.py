"""The objects of a group as the API takes them: one function an object, pure."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from job_tracker.backends.kubernetes.options import CONTAINER, PodOptions
from job_tracker.backends.kubernetes.strategic_merge import merged
from job_tracker.backends.shared.instances import HOME, SHARED_MEMORY, TEMPORARY
from job_tracker.backends.shared.labels import (
    ALGORITHM,
    ATTEMPT,
    INSTANCE,
    INSTANCES,
    JOB_ID,
    MANAGED_BY,
    NAME,
    PLAN_DIGEST,
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

_PORT_NAME = "master"
_DIGEST_LENGTH = 16
# What a group has selectors for; the other labels may not say "this group" alone.
_OF_GROUP = (MANAGED_BY, INSTANCE, JOB_ID, ATTEMPT)
_ANNOTATED = (ALGORITHM, INSTANCES, SUBMITTED_AT, PLAN_DIGEST)


def service(
    job: Job, name: str, namespace: str, instance: str, port: int, *, every_rank: bool
) -> dict[str, Any]:
    """The headless Service by which the master is found; with `every_rank`, all the pods are.

    It names pods that are not ready yet: a worker may look for a master that is still starting, and a
    negative answer would be kept by resolvers for a while.
    """
    labels = group_labels(job, instance)
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": labels,
        "annotations": group_annotations(job),
    }
    return _service(metadata, labels, port, every_rank=every_rank)


def service_of(master: Mapping[str, Any], port: int) -> dict[str, Any]:
    """The Service of a group as it was once made, from the master pod.

    `port` is for groups whose ranks do not read that of the master. If every rank is addressed, so is the
    master, by a name of its own below the Service's.
    """
    told, name = master["metadata"], master["spec"]["subdomain"]
    labels, annotations = told["labels"], told["annotations"]
    training = next(each for each in master["spec"]["containers"] if each["name"] == CONTAINER)
    variables = {each["name"]: each.get("value", "") for each in training.get("env", ())}
    metadata = {
        "name": name,
        "namespace": told["namespace"],
        "labels": {key: labels[key] for key in (*_OF_GROUP, NAME) if key in labels},
        "annotations": {key: annotations[key] for key in _ANNOTATED if key in annotations},
    }
    every_rank = any(f"{told['name']}.{name}" in value for value in variables.values())
    return _service(metadata, labels, int(variables.get("MASTER_PORT", port)), every_rank=every_rank)


def token_secret(job: Job, namespace: str, instance: str, tokens: Mapping[str, str]) -> dict[str, Any]:
    """The Secret of an attempt's tokens.

    Its name has a digest of them, so that who may not read it knows that one of this name is the same.
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
        "immutable": True,  # so no kubelet watches it
        "type": "Opaque",
        "stringData": dict(tokens),
    }


def token_variables(secret: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The variables whose values are in the Secret of the attempt's tokens."""
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
) -> dict[str, Any]:
    """The pod of one rank; `overlay` is laid over it, and what makes it ours over that."""
    training = {
        "name": CONTAINER,
        "image": image,
        **_present("imagePullPolicy", options.image_pull_policy),
        **_present("command", list(command)),
        **_present("workingDir", options.working_directory),
        "env": [dict(variable) for variable in environment],
        **_present("envFrom", [{"secretRef": {"name": secret}} for secret in options.secrets]),
        **_present("resources", _resources(options)),
        "volumeMounts": _mounts(options),
        # The end of the log is the evidence when the program leaves no message of its own.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    base = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": dict(options.labels), "annotations": dict(options.annotations)},
        "spec": {
            "restartPolicy": "Never",  # a rank alone is not restarted: the others wait for it in a collective
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
                # Else the owner of each file of a volume is set anew whenever a pod mounts it.
                **_present("fsGroupChangePolicy", "OnRootMismatch" if options.fs_group else None),
            },
            **_present("serviceAccountName", options.service_account),
            **_present("priorityClassName", options.priority_class),
            **_present("runtimeClassName", options.runtime_class),
            **_present("imagePullSecrets", [{"name": secret} for secret in options.image_pull_secrets]),
            **_present("nodeSelector", dict(options.node_selector)),
            **_present("tolerations", [_toleration(each) for each in options.tolerations]),
            **(_near_each_other(job, instance) if job.spec.instances > 1 else {}),
            "containers": [training],
            "volumes": _volumes(options),
        },
    }
    whole = merged(base, overlay)
    metadata = whole.get("metadata", {})
    whole["metadata"] = {
        "name": name,
        "namespace": namespace,
        "labels": {
            **metadata.get("labels", {}),
            **group_labels(job, instance),
            **rank_labels(rank, role),
        },
        "annotations": {**metadata.get("annotations", {}), **group_annotations(job)},
    }
    return whole


def variables(plain: Mapping[str, str]) -> list[dict[str, Any]]:
    """Plain values as `env` has them.

    A pod replaces $(NAME) in a value by another variable, which may be a secret: what a user sends must
    not be read so. Every $ is therefore written as $$, which stands for one.
    """
    return [{"name": name, "value": value.replace("$", "$$")} for name, value in plain.items()]


def secret_variables(options: PodOptions) -> list[dict[str, Any]]:
    """The variables whose values only the cluster knows."""
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": value.secret, "key": value.key}}}
        for name, value in options.secret_environment.items()
    ]


def _group_selector(job: Job, instance: str) -> dict[str, str]:
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


def _near_each_other(job: Job, instance: str) -> dict[str, Any]:
    """Rather one node than several, and rather one zone: gradients go from each rank to each."""
    selector = {"matchLabels": _group_selector(job, instance)}
    wishes = [
        {"weight": weight, "podAffinityTerm": {"labelSelector": selector, "topologyKey": key}}
        for key, weight in (("kubernetes.io/hostname", 100), ("topology.kubernetes.io/zone", 50))
    ]
    return {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wishes}}}


def _claims(options: PodOptions) -> dict[str, str]:
    """The name of the volume for each claim: claims may have names that volumes may not."""
    claims = dict.fromkeys(volume.claim for volume in options.volumes)
    return {claim: f"claim-{number}" for number, claim in enumerate(claims)}


def _volumes(options: PodOptions) -> list[dict[str, Any]]:
    mounted = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim}}
        for claim, name in _claims(options).items()
    ]
    return [
        {"name": "home", "emptyDir": {"sizeLimit": options.scratch_size}},
        {"name": "tmp", "emptyDir": {"sizeLimit": options.scratch_size}},
        # Docker's 64 MiB are too few for data loaders, which hand over batches in it.
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": options.shm_size}},
        *mounted,
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
    """The entry, unless there is nothing to say."""
    return {key: value} if value else {}

"""Diagnoses of the engine's errors during a launch. Pure functions, without I/O."""

import re

from job_tracker.backends.docker.engine_errors import EngineError, Unreachable
from job_tracker.domain.diagnosis import Category, Diagnosis

_NO_SUBNET = re.compile(r"non-overlapping IPv4 address pool|address pools have been fully subnetted")
_NO_DEVICE = re.compile(r"could not select device driver|nvidia-container|no such device|CDI device")
_BAD_MOUNT = re.compile(r"invalid mount|bind source path|invalid volume|error while creating mount source")
_BAD_LIMIT = re.compile(r"Range of CPUs|[Mm]inimum memory limit|[Mm]emory limit|shm size", re.ASCII)
_CANNOT_RUN = re.compile(r"executable file not found|exec format error|no such file or directory")
_HOST_GATEWAY = "host-gateway"
_BAD_REQUEST = 400


def diagnose_refusal(error: EngineError, name: str) -> Diagnosis | None:
    """Diagnose why a container or network cannot be created or started.

    Return None if the engine did not answer: then the same call may succeed later.
    """
    message = error.message
    if isinstance(error, Unreachable):
        return None
    if _NO_SUBNET.search(message):
        return Diagnosis(
            category=Category.QUOTA_EXCEEDED,
            summary="The Docker engine has no addresses left for the network of another group.",
            resolution="Wait until other groups have ended, remove unused networks (docker network "
            "prune), or give the engine more address pools (default-address-pools). Then submit the job "
            "again.",
            detail=message,
            retryable=True,
        )
    if _NO_DEVICE.search(message):
        return Diagnosis(
            category=Category.CONTAINER_NOT_CREATED,
            summary=f"The Docker engine cannot give {name} the GPUs that it asks for.",
            resolution="Install the NVIDIA Container Toolkit on the engine's machine, or submit the job "
            "without GPUs.",
            detail=message,
        )
    if _BAD_MOUNT.search(message):
        return Diagnosis(
            category=Category.CONTAINER_CONFIG,
            summary=f"A volume of {name} cannot be mounted.",
            resolution="Create the folder on the engine's machine, or correct `volumes` in docker.container "
            "and algorithms.NAME.docker.",
            detail=message,
        )
    if _HOST_GATEWAY in message:
        return Diagnosis(
            category=Category.CONTAINER_CONFIG,
            summary="The Docker engine does not know an address under which containers can reach its "
            "machine.",
            resolution="Set one (dockerd --host-gateway-ip), or give addresses in docker.extra_hosts.",
            detail=message,
        )
    if error.status == _BAD_REQUEST or _BAD_LIMIT.search(message):
        if _CANNOT_RUN.search(message):
            return Diagnosis(
                category=Category.CONTAINER_NOT_CREATED,
                summary=f"The Docker engine cannot run {name}.",
                resolution="The image lacks a file that is needed to start. See the detail.",
                detail=message,
            )
        return Diagnosis(
            category=Category.INVALID_OBJECT,
            summary=f"The Docker engine refuses {name}: it is not valid.",
            resolution="Correct the options of the request or of the algorithm. The detail names the invalid "
            "options.",
            detail=message,
        )
    return Diagnosis(
        category=Category.CONTAINER_NOT_CREATED,
        summary=f"The Docker engine cannot create or start {name}.",
        resolution="Read the detail. The log of the engine (journalctl -u docker) may have more.",
        detail=message,
        retryable=True,
    )


def image_missing(image: str, pull: str, detail: str) -> Diagnosis:
    """Diagnose why an image is not available."""
    if pull == "never":
        return Diagnosis(
            category=Category.IMAGE_PULL_FAILED,
            summary=f"The Docker engine does not have the image {image}, and docker.pull is never.",
            resolution="Build or load the image on the engine, or set docker.pull to missing.",
        )
    return Diagnosis(
        category=Category.IMAGE_PULL_FAILED,
        summary=f"The image {image} cannot be pulled.",
        resolution="Check the name and tag in algorithms.NAME.docker.image, the engine's connection to the "
        "registry, and its login (docker login as the account of the service). Or build the image on the "
        "engine.",
        detail=detail,
    )


def name_taken(name: str) -> Diagnosis:
    """Diagnose that a foreign object has the name that an object of the group needs."""
    return Diagnosis(
        category=Category.NAME_TAKEN,
        summary=f"The Docker engine already has an object named {name}, which does not belong to this job.",
        resolution="The service has not changed it. Remove it if it is not needed, or give the service its "
        "own engine. Then submit the job again.",
    )


def secret_missing(name: str, reason: str) -> Diagnosis:
    """Diagnose that the value of a secret variable cannot be read."""
    return Diagnosis(
        category=Category.CONTAINER_CONFIG,
        summary=f"The value of the variable {name} cannot be read.",
        resolution="Correct secret_files in docker.container or algorithms.NAME.docker, then submit the "
        "job again.",
        detail=reason,
    )

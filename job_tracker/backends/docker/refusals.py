"""From what the engine said to a call of a launch to what that means, and what to do about it. Pure."""

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
    """Why the container, or the network, could not be made or started; None if trying again may help."""
    told = error.message
    if isinstance(error, Unreachable):
        return None
    if _NO_SUBNET.search(told):
        return Diagnosis(
            category=Category.QUOTA_EXCEEDED,
            summary="The Docker engine has no addresses left for the network of another group.",
            resolution="Wait until other groups have ended, remove networks that nobody uses (docker network "
            "prune), or give the engine more of them (default-address-pools), then submit the job again.",
            detail=told,
            retryable=True,
        )
    if _NO_DEVICE.search(told):
        return Diagnosis(
            category=Category.CONTAINER_NOT_CREATED,
            summary=f"The Docker engine cannot give {name} the GPUs that it asks for.",
            resolution="Install the NVIDIA Container Toolkit on its machine, or ask for no GPUs.",
            detail=told,
        )
    if _BAD_MOUNT.search(told):
        return Diagnosis(
            category=Category.CONTAINER_CONFIG,
            summary=f"A volume of {name} cannot be mounted.",
            resolution="Make the folder on the engine's machine, or mend volumes of docker.container and of "
            "algorithms.NAME.docker.",
            detail=told,
        )
    if _HOST_GATEWAY in told:
        return Diagnosis(
            category=Category.CONTAINER_CONFIG,
            summary="The Docker engine does not know an address of its machine for containers.",
            resolution="Give it one (dockerd --host-gateway-ip), or set docker.extra_hosts to addresses.",
            detail=told,
        )
    if error.status == _BAD_REQUEST or _BAD_LIMIT.search(told):
        if _CANNOT_RUN.search(told):
            return Diagnosis(
                category=Category.CONTAINER_NOT_CREATED,
                summary=f"The Docker engine cannot run {name}.",
                resolution="Its image lacks what it needs to start, see the detail: mend the image.",
                detail=told,
            )
        return Diagnosis(
            category=Category.INVALID_OBJECT,
            summary=f"The Docker engine refuses {name}, as it is not valid.",
            resolution="Correct the options of the request or of the algorithm; the detail says which.",
            detail=told,
        )
    return Diagnosis(
        category=Category.CONTAINER_NOT_CREATED,
        summary=f"The Docker engine cannot make or start {name}.",
        resolution="Read what it says below; its own log (journalctl -u docker) may say more.",
        detail=told,
        retryable=True,
    )


def image_missing(image: str, pull: str, told: str) -> Diagnosis:
    """Why the image cannot be had."""
    if pull == "never":
        return Diagnosis(
            category=Category.IMAGE_PULL_FAILED,
            summary=f"The Docker engine does not have the image {image}, and docker.pull is never.",
            resolution="Build or load the image there, or set docker.pull to missing.",
        )
    return Diagnosis(
        category=Category.IMAGE_PULL_FAILED,
        summary=f"The image {image} cannot be pulled.",
        resolution="Check the name and tag of algorithms.NAME.docker.image, that the engine reaches the "
        "registry, and the login to it (docker login, as the service's account); or build it on the engine.",
        detail=told,
    )


def name_taken(name: str) -> Diagnosis:
    """Why a group cannot be launched whose name a stranger's object has."""
    return Diagnosis(
        category=Category.NAME_TAKEN,
        summary=f"There is another {name} on the Docker engine, which is not of this job.",
        resolution="It was left as it is. Remove it if nobody needs it, or give the service an engine of its "
        "own, and submit the job again.",
    )


def secret_missing(name: str, reason: str) -> Diagnosis:
    """Why a variable with a secret cannot be set."""
    return Diagnosis(
        category=Category.CONTAINER_CONFIG,
        summary=f"The value of the variable {name} cannot be read.",
        resolution="Mend secret_files of docker.container or of algorithms.NAME.docker, then submit again.",
        detail=reason,
    )

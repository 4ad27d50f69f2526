"""Pods as an API server of 1.20 to 1.34 returns them, reduced to the fields that the cache keeps."""

from datetime import UTC, datetime, timedelta
from typing import Any

from job_tracker.backends.kubernetes.cache import slim

START = "2026-11-21T12:00:00Z"
T0 = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SOON, LATE = T0 + timedelta(seconds=20), T0 + timedelta(seconds=60)


def at(seconds: int) -> str:
    return (T0 + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, status: str, reason: str = "", message: str = "", since: int = 0) -> dict[str, Any]:
    words = {key: text for key, text in (("reason", reason), ("message", message)) if text}
    times = {"lastProbeTime": None, "lastTransitionTime": at(since)}
    return {"type": kind, "status": status, **times, **words}


SCHEDULED = condition("PodScheduled", "True")
READY = [
    condition("PodReadyToStartContainers", "True"),  # from 1.29
    condition("Initialized", "True"),
    condition("Ready", "True"),
    condition("ContainersReady", "True"),
    SCHEDULED,
]


def container(state: dict[str, Any], name: str = "training", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "state": state,
        "lastState": {},
        "ready": "running" in state,
        "restartCount": 0,
        "image": "docker.io/library/intent-classification:0.1.0",
        "imageID": "",
        "started": "running" in state,
        **more,
    }


def pod(
    phase: str,
    *containers: dict[str, Any],
    conditions: Any = READY,
    spec: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    **status: Any,
) -> dict[str, Any]:
    whole = {
        "metadata": {"name": "intent-classification-1-1-worker", "uid": "u", **(metadata or {})},
        "spec": {"nodeName": "node-1", **(spec or {})},
        "status": {
            "phase": phase,
            "conditions": conditions,
            "hostIP": "10.0.0.1",
            "startTime": START,
            **({"containerStatuses": list(containers)} if containers else {}),
            "qosClass": "Guaranteed",
            **status,
        },
    }
    return dict(slim(whole))


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def terminated(code: int, reason: str = "Error", message: str = "", finished: int = 30) -> dict[str, Any]:
    words = {"message": message} if message else {}
    times = {"startedAt": START, "finishedAt": at(finished)}
    return {
        "terminated": {"exitCode": code, "reason": reason, **words, **times, "containerID": "containerd://1"}
    }


RUNNING = {"running": {"startedAt": START}}
# `kubectl delete pod` at 40 s with a grace of 10 s.
DELETED = {"deletionTimestamp": at(50), "deletionGracePeriodSeconds": 10}
PULL = 'Back-off pulling image "nope:1": ErrImagePull: failed to resolve reference "nope:1": not found'


def starting(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return pod("Pending", container(state), **more)


def disrupted(reason: str, message: str = "", since: int = 40) -> list[dict[str, Any]]:
    return [*READY, condition("DisruptionTarget", "True", reason, message, since)]

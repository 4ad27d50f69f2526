"""The cluster of the tests is real, and its parts can be stopped."""

import time
from typing import Any

import pytest

from tests.support.cluster import Cluster, CommandFailed
from tests.support.patience import PATIENCE


def pod(image: str, **environment: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "program"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "program",
                    "image": image,
                    "env": [{"name": name, "value": value} for name, value in environment.items()],
                    "securityContext": {
                        "runAsNonRoot": True,
                        "readOnlyRootFilesystem": True,
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }


def test_a_program_runs_to_its_end(cluster: Cluster, namespace: str, program_image: str) -> None:
    cluster.apply(namespace, pod(program_image, RANK="0", PRINT="hello", EXIT_CODE="3"))
    status = wait_until_ended(cluster, namespace)
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert cluster.kubectl("logs", "-n", namespace, "program") == "hello\n"


def test_programs_outlive_an_api_server(cluster: Cluster, namespace: str, program_image: str) -> None:
    cluster.apply(namespace, pod(program_image, RANK="0", PRINT="hello", RUN_SECONDS="2"))
    with cluster.stopped("apiserver"), pytest.raises(CommandFailed):
        cluster.get(namespace, "pods", "--request-timeout=2s")
    assert wait_until_ended(cluster, namespace)["phase"] == "Succeeded"


def wait_until_ended(cluster: Cluster, namespace: str) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE
    status: dict[str, Any]
    while (status := cluster.get(namespace, "pod", "program")["status"])["phase"] in ("Pending", "Running"):
        assert time.monotonic() < deadline, status
        time.sleep(0.2)
    return status

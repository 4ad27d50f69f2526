"""A namespace that holds groups."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from job_tracker.backends.kubernetes import log_ends
from tests.support.backends import KubernetesGroups
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE
from tests.support.place import Place


@pytest.fixture
def place(cluster: Cluster, namespace: str) -> Place:
    return Place(cluster, namespace)


@pytest.fixture(autouse=True)
def patient_diagnoses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a node take its time to send the end of the log of a failed pod, which a diagnosis needs."""
    monkeypatch.setattr(log_ends, "_SECONDS", PATIENCE)


@pytest.fixture
async def world(place: Place, program_image: str, tmp_path: Path) -> AsyncIterator[KubernetesGroups]:
    made = KubernetesGroups(place.cluster.kubeconfig, place.namespace, program_image, tmp_path / "logs")
    yield made
    await made.end()

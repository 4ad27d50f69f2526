"""Algorithms as the configuration declares them, and jobs that are resolved with them as in admission."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import pytest

from job_tracker.admission import admission
from job_tracker.admission.dataset_versions import DatasetVersions
from job_tracker.admission.resolution import Resolver
from job_tracker.backends.fake import FakePlugin
from job_tracker.backends.kubernetes.plugin import KubernetesPlugin
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.backends.registry import BackendPlugin
from job_tracker.catalog import Algorithm, FixedCatalog
from job_tracker.domain.job import Job
from tests.support.patience import PATIENCE
from training_service.settings import settings_model

SETTINGS: Any = settings_model()
"""The settings model with the tables of all backends."""

ALGORITHM: Any = get_args(SETTINGS.model_fields["algorithms"].annotation)[1]
"""The model of algorithms with the recipes of all backends."""


def algorithm_of(**values: Any) -> Any:
    """Return an algorithm with these values, including recipes."""
    return ALGORITHM(**values)


def resolved(job: Job, algorithms: Mapping[str, Algorithm], backend: str, plugin: BackendPlugin) -> Job:
    """Return the job as admission resolves it. Raises LaunchFailed."""
    return replace(job, spec=Resolver(FixedCatalog(algorithms), backend, plugin).completed(job.spec))


def fake_resolver(algorithms: Mapping[str, Algorithm] | None = None) -> Resolver:
    """Return the resolver of groups for the fake backend."""
    return Resolver(FixedCatalog(algorithms or {}), "fake", FakePlugin())


def pod_resolver(algorithms: Mapping[str, Algorithm], **settings: Any) -> Resolver:
    """Return the resolver of groups for Kubernetes."""
    plugin = KubernetesPlugin(KubernetesSettings(**settings))
    return Resolver(FixedCatalog(algorithms), "kubernetes", plugin)


def wait_for_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let new admissions wait long for the storage of datasets: on a busy machine it answers late."""
    monkeypatch.setattr(admission, "DatasetVersions", partial(DatasetVersions, patience=PATIENCE))

"""Where groups run, as configured: a backend, and what there is to do with it besides running groups."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from job_tracker.backends.base import Backend
from job_tracker.backends.fake import FakeBackend
from job_tracker.backends.process import ProcessBackend, ProcessOptions
from job_tracker.domain.observers import JobObserver, RequestObserver, ignore_job, ignore_request
from job_tracker.frameworks.job_environment import ExtraEnvironment, nothing_more
from job_tracker.jobs import Preflight
from training_service.settings import Settings


async def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Engine:
    """A backend; `connect` raises BackendRefused if its engine does not let us in; `rehearse`: see Jobs.

    `on_save` has the engine tell, where its own people look, what becomes of the jobs that run on it.
    `silent_seconds` is how long an engine that tells of changes, at least once a minute, has not done
    so; None of others.
    """

    backend: Backend[Any]
    connect: Callable[[], Awaitable[None]] = _nothing
    rehearse: Preflight | None = None
    on_save: JobObserver = ignore_job
    silent_seconds: Callable[[], float | None] = lambda: None


def make_engine(
    settings: Settings,
    store_id: str,
    tell: ExtraEnvironment = nothing_more,
    on_request: RequestObserver = ignore_request,
) -> Engine:
    """The engine that `settings.backend` names, for the jobs of a store. Nothing is connected to yet."""
    match settings.backend:
        case "fake":
            return Engine(FakeBackend())
        case "process":
            return Engine(_processes(settings, store_id, tell))
        case "docker":
            return _docker(settings, store_id, tell)
        case "kubernetes":
            return _kubernetes(settings, store_id, tell, on_request)


def _processes(settings: Settings, store_id: str, tell: ExtraEnvironment) -> ProcessBackend:
    process = settings.process
    options = ProcessOptions(
        path=process.path,
        inherit=process.inherit,
        extra={name: secret.get_secret_value() for name, secret in process.secret_environment.items()},
        first_port=process.first_port,
        last_port=process.last_port,
        most_log=settings.logs.max_bytes_per_rank,
        store_id=store_id,
    )
    return ProcessBackend(settings.storage.data_dir / "groups", settings.algorithms, options, tell)


def _docker(settings: Settings, store_id: str, tell: ExtraEnvironment) -> Engine:
    # Only this backend needs its client.
    from job_tracker.backends.docker import Access, DockerBackend, DockerOptions, PlanOptions

    docker, most_log = settings.docker, settings.logs.max_bytes_per_rank
    plan = PlanOptions(
        instance=docker.instance,
        master_port=docker.master_port,
        network=docker.network,
        extra_hosts=docker.extra_hosts,
        pull=docker.pull,
        most_log=most_log,
        container=docker.container,
    )
    options = DockerOptions(
        plan=plan,
        access=Access(base_url=docker.base_url),
        call_seconds=docker.call_seconds,
        store_id=store_id,
    )
    backend = DockerBackend(settings.storage.data_dir / "logs", settings.algorithms, options, tell)
    return Engine(backend, backend.connect)


def _kubernetes(
    settings: Settings, store_id: str, tell: ExtraEnvironment, on_request: RequestObserver
) -> Engine:
    # Its client takes as long to import as all the rest, and only this backend needs it.
    from job_tracker.backends.kubernetes import Access, KubernetesBackend, KubernetesOptions, PlanOptions
    from job_tracker.backends.kubernetes.preflight import DryRun

    kubernetes = settings.kubernetes
    plan = PlanOptions(
        namespace=kubernetes.namespace,
        instance=kubernetes.instance,
        master_port=kubernetes.master_port,
        pod=kubernetes.pod,
        stop_grace=settings.jobs.stop_grace,
        token_secrets=kubernetes.token_secrets,
    )
    access = Access(kubeconfig=kubernetes.kubeconfig, context=kubernetes.context)
    options = KubernetesOptions(
        plan=plan,
        access=access,
        start_grace=kubernetes.image_pull_grace,
        node_grace=kubernetes.lost_node_grace,
        most_log=settings.logs.max_bytes_per_rank,
        store_id=store_id,
    )
    backend = KubernetesBackend(
        settings.storage.data_dir / "logs", settings.algorithms, options, tell, on_request
    )
    return Engine(
        backend,
        backend.connect,
        DryRun(backend),
        backend.events.job_saved,
        lambda: backend.silent_seconds,
    )

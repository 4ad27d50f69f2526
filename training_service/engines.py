"""Where groups run, as configured: a backend, and what there is to do with it besides running groups."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from job_tracker.backends.base import Backend
from job_tracker.backends.fake import FakeBackend
from job_tracker.backends.process import ProcessBackend, ProcessOptions, ProcessSpool
from job_tracker.domain.observers import JobObserver, RequestObserver, ignore_job, ignore_request
from job_tracker.frameworks.job_environment import ExtraEnvironment, nothing_more
from job_tracker.jobs import Preflight
from job_tracker.logs.spool import FolderSpool, Spool
from training_service.settings import Settings


async def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Engine:
    """A backend, and the spool of its logs.

    `connect` raises BackendRefused if its engine does not let us in; `rehearse`: see Jobs.
    `on_save` has the engine tell, where its own people look, what becomes of the jobs that run on it.
    `silent_seconds` is how long an engine that tells of changes, at least once a minute, has not done
    so; None of others.
    """

    backend: Backend
    spool: Spool
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
            backend = FakeBackend()
            return Engine(backend, backend.world)
        case "process":
            return _processes(settings, store_id, tell)
        case "docker":
            return _docker(settings, _spool(settings, store_id), tell)
        case "kubernetes":
            return _kubernetes(settings, _spool(settings, store_id), tell, on_request)


def _spool(settings: Settings, store_id: str) -> FolderSpool:
    return FolderSpool(settings.storage.data_dir / "logs", settings.logs.max_bytes_per_rank, store_id)


def _processes(settings: Settings, store_id: str, tell: ExtraEnvironment) -> Engine:
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
    root = settings.storage.data_dir / "groups"
    return Engine(ProcessBackend(root, settings.algorithms, options, tell), ProcessSpool(root, store_id))


def _docker(settings: Settings, spool: FolderSpool, tell: ExtraEnvironment) -> Engine:
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
    )
    backend = DockerBackend(spool, settings.algorithms, options, tell)
    return Engine(backend, spool, backend.connect)


def _kubernetes(
    settings: Settings, spool: FolderSpool, tell: ExtraEnvironment, on_request: RequestObserver
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
    )
    backend = KubernetesBackend(spool, settings.algorithms, options, tell, on_request)
    return Engine(
        backend,
        spool,
        backend.connect,
        DryRun(backend),
        backend.events.job_saved,
        lambda: backend.silent_seconds,
    )

"""Opens the configured backend."""

from dataclasses import replace

from job_tracker.backends.base import Backend
from job_tracker.backends.registry import Opened, Surroundings
from job_tracker.domain.observers import ignore_request
from job_tracker.frameworks.job_environment import ExtraEnvironment, nothing_more
from job_tracker.logs.spool import FolderSpool
from training_service.metrics import Metrics
from training_service.metrics.outside import observed
from training_service.program_opening import open_trees
from training_service.settings import Settings


async def open_backend(
    settings: Settings,
    store_id: str,
    extra_environment: ExtraEnvironment = nothing_more,
    metrics: Metrics | None = None,
) -> Opened:
    """Open the configured backend for the jobs of a store. `metrics` observes the calls to the backend.

    Raises BackendRefused if the engine cannot be used as configured.
    """
    data_dir, most_log = settings.storage.data_dir, settings.logs.max_bytes_per_rank
    surroundings = Surroundings(
        data_dir=data_dir,
        store_id=store_id,
        most_log=most_log,
        spool=FolderSpool(data_dir / "logs", most_log, store_id),
        stop_grace=settings.jobs.stop_grace,
        trees=open_trees(settings),
        delegate=settings.scheduling.delegate or "",
        priorities=settings.scheduling.priorities,
        followed=settings.followed_flavors,
        extra_environment=extra_environment,
        on_request=metrics.observe_request if metrics else ignore_request,
    )
    opened = await settings.plugin.open(surroundings)
    if metrics is None:
        return opened
    return replace(opened, backend=observed(opened.backend, Backend, metrics.observe_outside("backend")))

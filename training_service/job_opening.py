"""Makes the operations behind the API, and the leadership with its tracker, according to the settings."""

import os
import socket
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from importlib.metadata import version

from job_tracker.access.projects import Projects
from job_tracker.admission.admission import Admission
from job_tracker.admission.parameter_check import ParameterCheck
from job_tracker.admission.resolution import Resolver
from job_tracker.backends.registry import Opened
from job_tracker.catalog import Catalog
from job_tracker.common.clock import utc_now
from job_tracker.declarations.catalog import DeclaredCatalog
from job_tracker.domain.audit import EventObserver
from job_tracker.domain.job import Job
from job_tracker.domain.open_streams import OpenStreams
from job_tracker.files.artifacts import ModelFiles
from job_tracker.jobs import Jobs
from job_tracker.logs.archive import LogArchive
from job_tracker.logs.collector import LogCollector
from job_tracker.logs.reader import LogReader
from job_tracker.reports import ReportBuffer, ReportKeys
from job_tracker.scheduling.mirror import Mirror
from job_tracker.scheduling.planner import PlannerOptions, plan
from job_tracker.store.base import Store
from job_tracker.tracking.leadership import Leadership, Tenure
from job_tracker.tracking.pool import FollowedPool
from job_tracker.tracking.replicas import Replica
from job_tracker.tracking.tracker import Tracker, TrackerOptions
from job_tracker.trees.changes import RecordedChanges
from job_tracker.trees.operations import Programs
from training_service.metrics import Metrics
from training_service.program_opening import open_trees
from training_service.settings import Settings


def make_jobs(
    settings: Settings,
    store: Store,
    store_id: str,
    opened: Opened,
    metrics: Metrics,
    projects: Projects,
    note: EventObserver,
    catalog: DeclaredCatalog,
    pool: FollowedPool,
    programs: Programs | None = None,
) -> Jobs:
    """Return the operations on jobs, which the API calls.

    `note` gets an event for each denial, and for each read of logs, artifacts and uncommitted changes.
    """
    admission = Admission(
        catalog,
        make_resolver(settings, catalog),
        max_processes=settings.scheduling.max_processes,
        models_uri=f"{settings.storage.root}/models",
        checkpoints_uri=f"{settings.storage.root}/checkpoints",
        store_id=store_id,
        defaults=settings.job_defaults,
        trees=programs,
        queues=pool,
    )
    return Jobs(
        store,
        LogReader(store, opened.backend, log_archive(settings)),
        admission,
        ModelFiles(settings.storage.root),
        max_queued=settings.scheduling.max_queued,
        max_queued_of_caller=settings.scheduling.max_queued_of_caller,
        parameter_check=ParameterCheck(catalog, settings.jobs.check_path),
        preflights=[opened.preflight] if opened.preflight else [],
        limits_of=projects.limits_of,
        is_deletable=projects.is_deletable,
        on_save=metrics.observe_job,
        note=note,
        changes_of=RecordedChanges(open_trees(settings)).read,
        streams=OpenStreams(settings.limits.open_streams, settings.limits.open_streams_of_caller, note=note),
        mirror=Mirror(store, lambda: pool.tree, planner_options(settings), pool=pool.now),
    )


def log_archive(settings: Settings) -> LogArchive:
    """Return the archive of the logs of ended groups."""
    root = settings.storage.root
    return LogArchive(f"{root}/logs", within=root)


def make_leadership(
    settings: Settings,
    store: Store,
    opened: Opened,
    logs: LogCollector,
    reports: ReportBuffer,
    metrics: Metrics,
    keys: ReportKeys,
    catalog: DeclaredCatalog,
    pool: FollowedPool,
    on_lead: Callable[[bool], None] = lambda _: None,
) -> Leadership:
    """Return the leadership of this replica, which runs the tracker during its terms."""
    options, resolver = tracker_options(settings), make_resolver(settings, catalog)

    def saved(before: Job, after: Job) -> None:
        metrics.observe_job(before, after)
        opened.on_save(before, after)

    def led(is_leading: bool) -> None:
        metrics.observe_leading(is_leading)
        on_lead(is_leading)

    async def track(tenure: Tenure) -> None:
        models = ModelFiles(settings.storage.root)
        tracker = Tracker(
            store,
            opened.backend,
            logs,
            options,
            tenure,
            reports,
            planner=partial(plan, options=planner_options(settings)),
            pool=pool.now,
            on_save=saved,
            models=models,
            resolve=resolver.completed,
            before_launch=keys.refresh,  # so that all launches of an attempt use one key, see ReportKeys.of
            access=opened.access,
            on_waiting=opened.on_waiting,
        )
        changed = tracker.capacity_changed
        with metrics.observing(tracker), pool.calling(changed), catalog.calling(changed):
            await tracker.run()

    return Leadership(
        store,
        track,
        holder=this_replica().name,
        lifetime=timedelta(seconds=settings.store.lease_seconds),
        on_change=led,
    )


def this_replica() -> Replica:
    """Return the description of this process for other replicas."""
    return Replica(
        name=f"{socket.gethostname()}/{os.getpid()}",
        version=version("training-service"),
        started_at=utc_now().timestamp(),
    )


def planner_options(settings: Settings) -> PlannerOptions:
    """Return the settings of the planner."""
    return PlannerOptions(
        reservations=settings.scheduling.reservations,
        overtake_limit=settings.scheduling.overtake_limit,
        half_life=settings.scheduling.usage_half_life.total_seconds(),
        delegated=settings.scheduling.delegate_waiting if settings.scheduling.delegate else None,
    )


def tracker_options(settings: Settings) -> TrackerOptions:
    """Return the settings of the tracker."""
    return TrackerOptions(
        capacity=settings.scheduling.capacity,
        usage_half_life=settings.scheduling.usage_half_life,
        stop_grace=settings.jobs.stop_grace,
        finish_grace=settings.jobs.finish_grace,
        keep_finished=settings.jobs.keep_finished,
        keep_failed_group=settings.jobs.keep_failed_group,
        keep_succeeded_group=settings.jobs.keep_succeeded_group,
        keep_events=settings.audit.keep,
        # Kueue still counts a failed pod as a member of its pod group, so a rank cannot be restarted alone.
        restarts_ranks=settings.scheduling.delegate is None,
    )


def make_resolver(settings: Settings, catalog: Catalog) -> Resolver:
    """Return the resolver of groups for the configured backend."""
    return Resolver(catalog, settings.backend, settings.plugin)

"""The composition root: builds the service from its settings, runs it, and stops it in order."""

import asyncio
import gc
import logging
import os
import resource
from contextlib import AsyncExitStack

from job_tracker.access.audit import AuditTrail
from job_tracker.access.audit_export import AuditExport
from job_tracker.access.projects import Projects
from job_tracker.access.report_keys import ReportKeyAccess
from job_tracker.common.clock import utc_now
from job_tracker.common.tasks import background, end
from job_tracker.domain.audit import EventObserver
from job_tracker.domain.call_kinds import CallKind
from job_tracker.domain.errors import StoreLost
from job_tracker.jobs import Jobs
from job_tracker.logs.collector import LogCollector
from job_tracker.reports import ReportBuffer, ReportEnvironment, ReportKeys, ReportTokens
from job_tracker.store.base import Store
from job_tracker.tracking.pool import FollowedPool
from job_tracker.tracking.replicas import Presence
from training_service import log_setup as service_logs
from training_service.access_opening import OpenedAccess, open_access
from training_service.api.access import AccessServicer
from training_service.api.catalog import CatalogServicer
from training_service.api.limits import CallLimits
from training_service.api.programs import ProgramServicer
from training_service.api.reporter import ReporterServicer
from training_service.api.servicer import TrainingServicer
from training_service.auth.live import Unusable
from training_service.auth.operator_token import FILE_NAME, remove_operator_token, write_operator_token
from training_service.backend_opening import open_backend
from training_service.catalog_opening import ConfigurationFile, OpenedCatalog, open_catalog
from training_service.certificate_opening import Certificates, open_certificates
from training_service.exposure import log_exposure
from training_service.freed_memory import give_back
from training_service.job_opening import log_archive, make_jobs, make_leadership, this_replica
from training_service.metrics import Metrics, MetricsServer
from training_service.metrics.outside import observed
from training_service.notices import READY, STOPPING, notify
from training_service.program_opening import open_programs, open_trees, tree_sweeper
from training_service.serving import CannotServe, Servers, Servicers
from training_service.settings import Settings
from training_service.settings.addresses import split
from training_service.settings.protection import is_open
from training_service.stop_signal import stop_signal
from training_service.store_opening import open_store
from training_service.web_opening import CannotOpenDashboard, Dashboard, open_dashboard

log = logging.getLogger(__name__)

_CAMPAIGN = "the campaign for leadership"
_UMASK = 0o077
"""Only the service's user can read files of the service and of its jobs: jobs inherit the umask."""


def run(settings: Settings, file: ConfigurationFile | None = None) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises TrackerError if the store or the backend cannot be used, and CannotServe for other problems.

    `file` is the file of the settings: changes of its algorithms, datasets and queues apply without a
    restart.
    """
    os.umask(_UMASK)
    service_logs.set_up(settings.logging)
    _allow_many_files()
    gc.freeze()  # keep imported objects out of garbage collection
    asyncio.run(serve(settings, file))


async def serve(settings: Settings, file: ConfigurationFile | None = None) -> None:
    """Serve until a stop signal, then close everything in order. Groups continue to run.

    Before the stop signal, only an error can end the campaign for leadership. After such an error, the
    service stops, too, and StoreLost or CannotServe is raised.
    """
    stop_requested = stop_signal()
    async with AsyncExitStack() as stack:
        metrics = Metrics()
        certificates = _certificates(settings)
        metrics.observe_certificates(
            lambda: certificates.ends() if certificates else {},
            lambda: certificates.problems() if certificates else 0,
        )
        store = observed(await open_store(settings), Store, metrics.observe_outside("store"))
        stack.push_async_callback(store.close)
        if export := _audit_export(settings, store):
            stack.push_async_callback(export.close)  # called after trail.close has written the last events
            stack.push_async_callback(end, background(export.run(), "export of the audit"))
        trail = AuditTrail(store)
        stack.push_async_callback(end, background(trail.run(), "audit"))
        stack.push_async_callback(trail.close)
        access = await _access(settings, store, trail.note)
        opened_catalog = await _catalog(settings, store, access.projects, trail.note, file)
        catalog = opened_catalog.catalog
        metrics.observe_catalog(lambda: catalog.problem)
        store_id = await store.store_id()
        keys = await ReportKeys.open(store)
        stack.push_async_callback(end, background(keys.follow(), "keys of report tokens"))
        tokens = ReportTokens(keys)
        report_environment = ReportEnvironment(
            tokens, settings.reports.address, certificates.report_ca if certificates else None
        )
        opened = await open_backend(settings, store_id, report_environment, metrics)
        stack.push_async_callback(opened.backend.close)
        pool = FollowedPool(catalog, opened.inventory)
        stack.push_async_callback(end, background(pool.follow(), "machines"))
        metrics.observe_store(store, pool.instances, access.projects.names)
        metrics.observe_watch(opened.silent_seconds)
        reports = ReportBuffer(store, utc_now)
        stack.push_async_callback(end, background(reports.run(), "reports"))
        collector = LogCollector(store, opened.spool, log_archive(settings))
        stack.push_async_callback(collector.close)
        stack.push_async_callback(end, background(collector.run(), "collection of logs"))
        presence = Presence(store, this_replica())
        leadership = make_leadership(
            *(settings, store, opened, collector, reports, metrics, keys, catalog, pool), presence.lead
        )
        stack.callback(_metrics_server(metrics, settings, certificates).close)
        stack.push_async_callback(end, background(metrics.observe_loop(), "measurement of the event loop"))
        stack.push_async_callback(end, background(give_back(), "return of memory"))
        programs = open_programs(settings, access.projects.limits_of, trail.note)
        sweeper = tree_sweeper(settings, store)
        stack.push_async_callback(end, background(sweeper.run(), "removal of unused programs"))
        jobs = make_jobs(
            *(settings, store, store_id, opened, metrics, access.projects, trail.note, catalog, pool),
            programs,
        )
        stack.push_async_callback(jobs.mirror.close)
        stack.push_async_callback(end, background(catalog.follow(), "changes of the catalog"))
        access.callers.on_change(lambda: jobs.streams.recheck(access.callers.remembering()))
        stack.push_async_callback(access.callers.close)
        stack.push_async_callback(end, background(access.callers.follow(), "changes of tokens and roles"))
        limits = call_limits(settings)
        servicer = TrainingServicer(jobs, cancelled_as_failure=settings.server.cancelled_as_failure)
        servers = Servers(
            settings,
            certificates.tls if certificates else None,
            Servicers(
                servicer,
                AccessServicer(access.operations, ReportKeyAccess(store, keys, note=trail.note)),
                ReporterServicer(tokens, reports, limits, trail.note, open_trees(settings)),
                ProgramServicer(programs),
                CatalogServicer(opened_catalog.operations),
            ),
            access.authenticator,
            metrics.observe_call,
            limits,
            metrics.observe_refusal,
        )
        dashboard = _dashboard(
            *(settings, store, store_id, jobs, access, opened_catalog, keys, limits, servers.port),
            certificates,
            metrics,
        )
        if dashboard:
            stack.push_async_callback(dashboard.stop)
        _offer_operator_token(settings, access, servers.port)
        report_environment.address = _address_for_ranks(settings, servers, certificates)
        leading = background(leadership.run(), _CAMPAIGN, expected=(StoreLost,))
        stack.push_async_callback(end, leading)
        if certificates:
            stack.push_async_callback(end, background(certificates.watch(), "watch of certificates"))
        await servers.start()
        presence.serve_at(f"{split(settings.server.address)[0]}:{servers.port}")
        stack.push_async_callback(presence.close)
        stack.push_async_callback(end, background(presence.run(), "note of this replica"))
        if dashboard:
            await dashboard.start()
        log_exposure(settings)  # only after a successful start: a failed start logs one line only
        log.info("serving at %s:%d, pid %d", split(settings.server.address)[0], servers.port, os.getpid())
        notify(READY)

        stopping = asyncio.create_task(stop_requested.wait())
        await asyncio.wait([stopping, leading], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()

        log.info("stopping; running groups are left alone")
        notify(STOPPING)
        await servers.drain()
        servicer.close()
        # Resign while calls in progress end, so that another replica can lead at once.
        pages = [dashboard.stop()] if dashboard else []
        await asyncio.gather(end(leading), servers.stop(), *pages)
    if not stop_requested.is_set():
        error = leading.exception()
        raise (
            error
            if isinstance(error, StoreLost)
            else CannotServe(f"{_CAMPAIGN} ended unexpectedly; see the log")
        )
    log.info("stopped")


def call_limits(settings: Settings) -> CallLimits:
    """Return the limits on calls by caller and kind."""
    return CallLimits({kind: settings.limits.rate_of(kind) for kind in CallKind})


def _certificates(settings: Settings) -> Certificates | None:
    try:
        return open_certificates(settings)
    except Unusable as error:
        raise CannotServe(str(error)) from error


def _audit_export(settings: Settings, store: Store) -> AuditExport | None:
    """Return the export of the audit; None if none is configured.

    Raises CannotServe if its file is not writable.
    """
    path = settings.audit.file
    if path is None:
        return None
    try:
        if path.exists() and not path.is_file():
            raise CannotServe(f"audit.file: {path} is not a regular file")
        path.open("ab").close()
    except OSError as error:
        raise CannotServe(f"audit.file: {path} cannot be written ({error.strerror})") from error
    return AuditExport(store, path, settings.storage.data_dir / "audit-export.id")


async def _access(settings: Settings, store: Store, note: EventObserver) -> OpenedAccess:
    try:
        return await open_access(settings, store, note)
    except Unusable as error:
        raise CannotServe(str(error)) from error


async def _catalog(
    settings: Settings,
    store: Store,
    projects: Projects,
    note: EventObserver,
    file: ConfigurationFile | None,
) -> OpenedCatalog:
    try:
        return await open_catalog(settings, store, projects, note, file)
    except Unusable as error:
        raise CannotServe(str(error)) from error


def _offer_operator_token(settings: Settings, access: OpenedAccess, port: int) -> None:
    """Write a file with a token for trainctl on this machine. If callers need no token, remove the file.

    Raises CannotServe if the file cannot be written or removed.
    """
    folder = settings.storage.data_dir
    try:
        if is_open(settings):
            remove_operator_token(folder)
            return
        address = f"{split(settings.server.address)[0]}:{port}"
        access.callers.accept_operator(write_operator_token(folder, address))
    except OSError as error:
        raise CannotServe(
            f"storage.data_dir: {folder / FILE_NAME} cannot be written ({error.strerror})"
        ) from error


def _address_for_ranks(settings: Settings, servers: Servers, certificates: Certificates | None) -> str | None:
    """Return the address at which ranks call the service; None if they can only print their reports."""
    listening, port = servers.report_address
    address = settings.reports.address or settings.plugin.address_for_ranks(split(listening)[0], port)
    if certificates is None or address is None:
        return address
    if settings.server.tls.client_certificates == "required" and not settings.reports.listen:
        log.warning(
            "server.tls.client_certificates: ranks have no certificates, so they report by printed lines "
            "only; set reports.listen to an address of their own"
        )
        return None
    return certificates.address_for_ranks(address)


def _dashboard(
    settings: Settings,
    store: Store,
    store_id: str,
    jobs: Jobs,
    access: OpenedAccess,
    catalog: OpenedCatalog,
    keys: ReportKeys,
    limits: CallLimits,
    port: int,
    certificates: Certificates | None,
    metrics: Metrics,
) -> Dashboard | None:
    try:
        return open_dashboard(
            *(settings, store, store_id, jobs, access, catalog.operations, keys, limits, port),
            certificates.tls if certificates else None,
            metrics.observe_call,
            metrics.observe_refusal,
        )
    except CannotOpenDashboard as error:
        raise CannotServe(str(error)) from error


def _metrics_server(metrics: Metrics, settings: Settings, certificates: Certificates | None) -> MetricsServer:
    tls = certificates.tls if certificates and settings.metrics.tls is not False else None
    try:
        return MetricsServer(metrics.registry, settings.metrics, tls)
    except OSError as error:
        raise CannotServe(
            f"metrics.port: cannot listen at {settings.metrics.port}: {error.strerror}. Choose another port"
        ) from error


def _allow_many_files() -> None:
    """Raise the soft limit of file descriptors, which is often 1024, to the hard limit.

    The service needs one or two descriptors for each running rank.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

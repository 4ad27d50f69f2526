"""Opens the dashboard that the settings describe."""

import logging
import socket
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from job_tracker.access.service_view import ServiceView
from job_tracker.declarations.operations import Declarations
from job_tracker.jobs import Jobs
from job_tracker.reports import ReportKeys
from job_tracker.store.base import Store
from training_service.access_opening import OpenedAccess
from training_service.api.limits import CallLimits
from training_service.auth.live import Live
from training_service.auth.tls import ServerTls
from training_service.settings import Settings
from training_service.settings.addresses import host_of, is_loopback, split
from training_service.settings.protection import is_web_open
from training_service.store_opening import store_place

if TYPE_CHECKING:
    from training_service.web.server import WebServer
    from training_service.web.site import CallObserver

log = logging.getLogger(__name__)

_EXTRA = ("starlette", "uvicorn", "jinja2")


class CannotOpenDashboard(Exception):
    """The dashboard cannot be served as the settings require. The message is one line."""


class Dashboard:
    """The dashboard of this replica. It answers after `start`."""

    def __init__(self, server: "WebServer", close_streams: Callable[[], None], url: str) -> None:
        self._server = server
        self._close_streams = close_streams
        self.url = url

    async def start(self) -> None:
        """Answer requests, and log the URL."""
        await self._server.start()
        log.info("dashboard at %s", self.url)

    async def stop(self) -> None:
        """End the streams of pages, so that browsers connect to another replica. Then stop.

        The call may be repeated.
        """
        self._close_streams()
        await self._server.stop()


def is_wanted(settings: Settings) -> bool:
    """Return whether to serve the dashboard.

    If a library is missing, return False if `web.enabled` is not set, and raise CannotOpenDashboard if
    `web.enabled` is true.
    """
    wanted = settings.web.enabled
    if wanted is False or (wanted is None and not is_loopback(settings.server.address)):
        return False
    if all(find_spec(name) for name in _EXTRA):
        return True
    if wanted:
        raise CannotOpenDashboard(
            "web.enabled: the dashboard needs more libraries; install training-service[web]"
        )
    log.info("no dashboard: install training-service[web] for it")
    return False


def open_dashboard(
    settings: Settings,
    store: Store,
    store_id: str,
    jobs: Jobs,
    access: OpenedAccess,
    catalog: Declarations,
    keys: ReportKeys,
    limits: CallLimits,
    api_port: int,
    tls: Live[ServerTls] | None,
    observe: "CallObserver",
    observe_refusal: Callable[[str], None],
) -> Dashboard | None:
    """Listen, and return the dashboard; None if `is_wanted` is false.

    Raises CannotOpenDashboard if a library is missing, or if the address cannot be used.
    """
    if not is_wanted(settings):
        return None
    # Imported here, since the libraries are an extra, and take a moment to import.
    from training_service.web.live import LivePages
    from training_service.web.routes import PAGES
    from training_service.web.server import WebServer
    from training_service.web.sessions import Sessions
    from training_service.web.shared import SharedParts
    from training_service.web.site import make_site
    from training_service.web.visitors import Visitors
    from training_service.web.visits import Parts

    is_encrypted = tls is not None
    live = LivePages(settings.web.streams)
    parts = Parts(
        jobs=jobs,
        access=access.operations,
        catalog=catalog,
        service=ServiceView(
            store,
            store_id=store_id,
            store_place=store_place(settings),
            storage=settings.storage.root,
            note=access.note,
        ),
        visitors=Visitors(
            authenticator=access.authenticator,
            callers=access.callers,
            sessions=Sessions(lambda: keys.current, settings.web.session),
            is_open=is_web_open(settings),
            # A browser sends a cookie to all services on a machine, so each service has its own cookie name.
            cookie=f"{'__Host-' if is_encrypted else ''}training-{store_id}",
            is_encrypted=is_encrypted,
        ),
        changes=store.changes,
        live=live,
        shared=SharedParts(),
        api_address=f"{split(settings.server.address)[0]}:{api_port}",
    )
    site = make_site(parts, PAGES, limits, observe, observe_refusal, _names(settings))
    listening = _listen(settings, api_port)
    server = WebServer(site, listening, tls, settings.server.shutdown_seconds)
    shown = split(settings.web.address)[0] if settings.web.address else "127.0.0.1"
    return Dashboard(server, live.close, f"http{'s' if is_encrypted else ''}://{shown}:{server.port}/")


def _names(settings: Settings) -> frozenset[str]:
    own = {host_of(settings.web.address)} if settings.web.address else set()
    return settings.web.hosts | own


def _listen(settings: Settings, api_port: int) -> socket.socket:
    from training_service.web.server import listen

    address = settings.web.address
    if address is None:
        wanted = 0 if split(settings.server.address)[1] == "0" else api_port + 1
        try:
            return listen("127.0.0.1", wanted)
        except (OSError, OverflowError):  # the port is in use, or is above the largest port
            return listen("127.0.0.1", 0)
    try:
        return listen(host_of(address), int(split(address)[1]))
    except OSError as error:
        raise CannotOpenDashboard(
            f"web.address: cannot listen at {address}: {error.strerror}. Choose another address"
        ) from error

"""Settings of the dashboard."""

from datetime import timedelta

from pydantic import Field

from job_tracker.common.config import Config, Duration
from training_service.settings.addresses import Address


class WebSettings(Config):
    """The dashboard: web pages of the service."""

    enabled: bool | None = Field(
        default=None,
        description="Serve the dashboard. Unset: true if `server.address` is on loopback and the extra `web` "
        "is installed.",
    )
    address: Address | None = Field(
        default=None,
        description="Listening address of the dashboard, HOST:PORT. Port 0 takes a free port. With a host "
        "other than loopback, the service needs `server.insecure` or `server.tls`. With `server.tls`, "
        "callers then need a token. Unset: 127.0.0.1, with the next port after the port of `server.address`, "
        "or with any free port if the next one is in use. The log has the URL.",
    )
    hosts: frozenset[str] = Field(
        default=frozenset(),
        description="Names, such as `jobs.example.org`, under which browsers reach the dashboard, besides "
        "loopback and the host of `address`. Requests for other names are refused, so that other sites "
        "cannot reach the dashboard through a name that they control.",
    )
    session: Duration = Field(
        default=timedelta(hours=12),
        ge=timedelta(minutes=1),
        le=timedelta(days=30),
        description="How long a login lasts. A token that ends earlier ends its sessions, too.",
    )
    streams: int = Field(
        default=200,
        ge=1,
        le=10_000,
        description="Number of pages that the service keeps up to date at the same time, for all callers "
        "together. Further pages are shown, but do not change until they are loaded again.",
    )

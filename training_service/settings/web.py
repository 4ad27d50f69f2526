"""Settings of the dashboard."""

from datetime import timedelta

from pydantic import Field

from job_tracker.common.config import Config, Duration
from training_service.settings.addresses import Address


class WebSettings(Config):
    """The dashboard, a web page that the service itself serves."""

    enabled: bool | None = Field(
        default=None,
        description="Serve the dashboard. Unset: if `server.address` is on loopback, and the extra `web` is "
        "installed.",
    )
    address: Address | None = Field(
        default=None,
        description="Listening address of the dashboard, HOST:PORT. Port 0 takes a free port. A host other "
        "than loopback needs `server.tls`, and its callers a token, or `server.insecure`. Unset: 127.0.0.1, "
        "with the port after that of `server.address` if it is free, or else any other. The log has the URL.",
    )
    hosts: frozenset[str] = Field(
        default=frozenset(),
        description="Names, such as `jobs.example.org`, under which browsers reach the dashboard, besides "
        "loopback and the host of `address`. Requests for other names are refused: so no page of another "
        "site can reach the dashboard under a name of its own.",
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
        description="Pages of all callers that may be kept up to date at the same time. Further ones are "
        "shown, but do not change by themselves.",
    )

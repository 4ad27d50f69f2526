"""Settings of the service itself: its addresses, its storage, its logs and metrics."""

import os
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from job_tracker.common.config import Config
from job_tracker.logs.writing import SMALLEST_LOG
from training_service.settings.addresses import Address
from training_service.settings.tls import TlsSettings


class ServerSettings(Config):
    """The gRPC server."""

    address: Address = Field(
        default="127.0.0.1:51001",
        description="Listening address, HOST:PORT. Port 0 takes a free port. With a host other than "
        "loopback, the service needs `insecure` or `tls`. With `tls`, each caller then needs a token or a "
        "certificate.",
    )
    insecure: bool = Field(
        default=False,
        description="Allow addresses that other machines can reach, without TLS. Callers then need no token "
        "either, unless `auth.loopback` is `token`. Set this only behind a firewall or a "
        "network policy.",
    )
    tls: TlsSettings = Field(default=TlsSettings(), description="Encryption, and client certificates.")
    health_address: Address | None = Field(
        default=None,
        description="Second listening address, HOST:PORT, that answers health checks only, without TLS. It "
        "is for probes that cannot use TLS and client certificates, such as the probes of Kubernetes. Unset: "
        "health checks are answered at `address` only.",
    )
    shutdown_seconds: float = Field(
        default=5,
        ge=0,
        le=300,
        description="Time in seconds for which the service waits for running calls after SIGTERM. Then it "
        "aborts them.",
    )
    cancelled_as_failure: bool = Field(
        default=False,
        description="Report cancelled jobs as `failure` in GetTrainingStatus, for old clients that do not "
        "know the status `cancelled` (5). Clients that send the metadata `x-knows-cancelled`, as trainctl "
        "does, still get `cancelled`.",
    )


def _default_data_dir() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "training-service"


class StorageSettings(Config):
    """Local and shared storage."""

    data_dir: Path = Field(
        default_factory=_default_data_dir,
        description="Local folder of this service, with the job store and the files of running processes. "
        "Default: `training-service` in XDG_STATE_HOME, or in `~/.local/state` without it.",
    )
    uri: str | None = Field(
        default=None,
        min_length=1,
        description="fsspec URI of datasets, models, checkpoints and logs. Unset: the folder `storage` in "
        "`data_dir`.",
    )
    start_anew: bool = Field(
        default=False,
        description="Start even if the SQLite job store never had a job and `data_dir` has folders of jobs. "
        "If false, the service then refuses to start, because the store was probably lost. This setting "
        "removes no job from a store.",
    )

    @property
    def root(self) -> str:
        """The URI of datasets, models, checkpoints and logs, without a trailing slash."""
        return (self.uri or str(self.data_dir.absolute() / "storage")).rstrip("/")


class StoreSettings(Config):
    """The job store: a local SQLite file by default, or Redis shared by several replicas."""

    url: SecretStr | None = Field(
        default=None,
        description="Redis server: redis://HOST:PORT/DB, rediss://... for TLS, or unix://PATH. Replicas of "
        "one service share it. Unset: a SQLite file in `storage.data_dir`.",
    )
    prefix: str = Field(
        default="training-service",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="Prefix of all keys in Redis. Services with the same prefix share their jobs.",
    )
    answer_seconds: float = Field(
        default=5, ge=0.1, le=60, description="Time-out of one call to Redis, in seconds."
    )
    lease_seconds: float = Field(
        default=5,
        ge=1,
        le=60,
        description="Time after which another replica takes over from a leader that no longer renews its "
        "lease, in seconds.",
    )

    @field_validator("url")
    @classmethod
    def _url_is_of_redis(cls, url: SecretStr | None) -> SecretStr | None:
        hint = "it must be redis://HOST:PORT/0, rediss://… for TLS, or unix://PATH"
        try:
            parts = urlsplit(url.get_secret_value() if url else "redis://host")
            _ = parts.port  # raises ValueError if the port is not a number
        except ValueError:
            raise ValueError(hint) from None  # the original message may contain the password
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise ValueError(hint)
        return url


class ReportSettings(Config):
    """Reports of training processes: progress, metrics and artifacts."""

    address: Address | None = Field(
        default=None,
        description="Address at which training processes reach this service, HOST:PORT. Unset: with backend "
        "`process`, ranks use `server.address`. With backend `docker`, they use `host.docker.internal` if "
        "the service listens on all addresses. All other ranks cannot call it. They print their reports, "
        "which the service reads from the logs.",
    )
    listen: Address | None = Field(
        default=None,
        description="Listening address, HOST:PORT, where ranks can only send reports and fetch the files of "
        "uploaded programs. With it, ranks do not need to reach `server.address`. Unset: ranks report at "
        "`server.address`.",
    )
    ca: Path | None = Field(
        default=None,
        description="PEM file with the authorities of `server.tls.certificate`, which ranks get in "
        "`REPORT_CA`. Unset: ranks trust the authorities that gRPC trusts by default.",
    )


class LogSettings(Config):
    """Output of the ranks of jobs. It is stored as long as the job."""

    max_bytes_per_rank: int = Field(
        default=100 << 20,
        ge=SMALLEST_LOG,
        le=1 << 40,
        description="Largest stored log of one rank in one attempt, in bytes. The times of the lines count. "
        "If a log is larger, its first records, up to a quarter of this size, and its newest records are "
        "kept. A line between them has the number of missing bytes.",
    )


class MetricsSettings(Config):
    """Prometheus metrics over HTTP."""

    port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port of the metrics. 0 takes a free port. Unset: no metrics.",
    )
    address: str = Field(
        default="127.0.0.1",
        description="Listening host of the metrics. It may be reachable from other machines: metrics are "
        "read-only and contain no text that users wrote.",
    )
    tls: bool | None = Field(
        default=None,
        description="Serve the metrics by HTTPS, with the certificate of `server.tls`. Unset: true if "
        "`server.tls` is set.",
    )


class LoggingSettings(Config):
    """The service's own log, on standard error."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="Lowest level that is logged."
    )
    format: Literal["console", "json"] = Field(
        default="console", description="`console`: text for people. `json`: one JSON object a line."
    )

"""The service itself: where it listens, what it keeps where, what it tells of itself."""

import os
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import (
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
)

from job_tracker.common.config import Config
from job_tracker.logs.writing import SMALLEST_LOG
from training_service.settings.addresses import is_loopback

_LAST_PORT = 65535


class ServerSettings(Config):
    """The gRPC server."""

    # Before `address`, whose check looks at it.
    insecure: bool = Field(
        default=False,
        description="listen beyond this machine, although the service asks no caller who it is",
    )
    address: str = Field(
        default="127.0.0.1:51001",
        pattern=r"^(\[[0-9a-fA-F:.]+\]|[^:\s]+):\d{1,5}$",
        description="where to listen; port 0 takes a free one",
    )

    @field_validator("address")
    @classmethod
    def _port_exists(cls, address: str) -> str:
        if int(address.rpartition(":")[2]) > _LAST_PORT:
            raise ValueError(f"there are ports up to {_LAST_PORT} only")
        return address

    @field_validator("address")
    @classmethod
    def _is_meant_to_be_reached(cls, address: str, info: ValidationInfo) -> str:
        if not info.data.get("insecure", True) and not is_loopback(address):
            raise ValueError(
                "it can be reached from other machines, and the service does not ask callers who they are: "
                "whoever reaches the port can submit, read and cancel every job. Listen on this machine only "
                "(127.0.0.0/8, [::1] or localhost), or keep others away from the port by a firewall or a "
                "network policy and set server.insecure = true (--insecure)"
            )
        return address

    shutdown_seconds: float = Field(
        default=5, ge=0, le=300, description="how long calls may still run after the order to stop"
    )
    cancelled_as_failure: bool = Field(
        default=False,
        description="report cancelled jobs as `failure` in GetTrainingStatus, for clients that know no "
        "status 5; to those that send the metadata x-knows-cancelled, as trainctl does, still as `cancelled`",
    )


def _default_data_dir() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "training-service"


class StorageSettings(Config):
    """Where things are kept."""

    data_dir: Path = Field(
        default_factory=_default_data_dir, description="the job store, and the files of running processes"
    )
    uri: str | None = Field(
        default=None,
        min_length=1,
        description="fsspec URI of datasets, models, checkpoints and logs; default: `storage` in data_dir",
    )
    start_anew: bool = Field(
        default=False,
        description="begin with an empty job store although there are folders of jobs that it does not know",
    )

    @property
    def root(self) -> str:
        """The URI of datasets, models, checkpoints and logs."""
        return (self.uri or str(self.data_dir.absolute() / "storage")).rstrip("/")


class StoreSettings(Config):
    """Where jobs are recorded."""

    url: SecretStr | None = Field(
        default=None,
        description="a Redis server (redis://, rediss://, unix://), which several services may share; "
        "none: a file in storage.data_dir",
    )
    prefix: str = Field(
        default="training-service",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="of all keys in Redis; services with the same one share their jobs",
    )
    answer_seconds: float = Field(
        default=5, ge=0.1, le=60, description="how long Redis may take to answer before a call fails"
    )
    lease_seconds: float = Field(
        default=5,
        ge=1,
        le=60,
        description="how long the leading replica may be silent before another one leads",
    )

    @field_validator("url")
    @classmethod
    def _url_is_of_redis(cls, url: SecretStr | None) -> SecretStr | None:
        hint = "give it as redis://HOST:PORT/0, rediss://… for TLS, or unix://PATH"
        try:
            parts = urlsplit(url.get_secret_value() if url else "redis://host")
            _ = parts.port  # raises for one that is no number
        except ValueError:
            raise ValueError(hint) from None  # its own message may show the password
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise ValueError(hint)
        return url


class ReportSettings(Config):
    """What training processes tell the service."""

    address: str | None = Field(
        default=None,
        pattern=r"^(\[[0-9a-fA-F:.]+\]|[^:\s]+):\d{1,5}$",
        description="where training processes reach this service (HOST:PORT); none: they cannot call it, and "
        "report by what they print; processes on this machine need none",
    )


class LogSettings(Config):
    """What the ranks of jobs print. It is kept in the storage as long as the job."""

    max_bytes_per_rank: int = Field(
        default=100 << 20,
        ge=SMALLEST_LOG,
        le=1 << 40,
        description="how much is kept of each rank's log in an attempt, the times of its lines included: the "
        "first quarter and the newest; a line says how much is missing in between",
    )


class MetricsSettings(Config):
    """Prometheus metrics over HTTP."""

    port: int | None = Field(default=None, ge=0, le=65535, description="none: no metrics; 0: a free port")
    address: str = Field(
        default="127.0.0.1",
        description="where to listen, also beyond this machine: metrics can only be read, and hold no text "
        "of users",
    )


class LoggingSettings(Config):
    """The service's own log, on standard error."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    format: Literal["console", "json"] = "console"

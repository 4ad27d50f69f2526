"""Settings of TLS."""

from datetime import timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from job_tracker.common.config import Config, Duration
from training_service.settings.addresses import Address


class TlsSettings(Config):
    """TLS of all ports except `server.health_address` and, with `metrics.tls = false`, the metrics.

    The files are read again when they have changed, without a restart.
    """

    certificate: Path | None = Field(
        default=None,
        description="PEM file with the server's certificate, followed by the certificates of the authorities "
        "between it and a root. Unset: no TLS.",
    )
    key: Path | None = Field(
        default=None,
        description="PEM file with the private key of `certificate`, without a password: ECDSA, or RSA with "
        "at least 2048 bits. Only the service's user and group may read it.",
    )
    client_certificates: Literal["none", "optional", "required"] = Field(
        default="none",
        description="Whether clients identify themselves by certificates. `none`: they do not. `required`: "
        "each client of `server.address` must. `optional`: clients with certificates use "
        "`certificate_address`, others use `server.address`.",
    )
    client_ca: Path | None = Field(
        default=None,
        description="PEM file with the authorities of client certificates. Any certificate of these "
        "authorities is accepted. Required unless `client_certificates` is `none`.",
    )
    certificate_address: Address | None = Field(
        default=None,
        description="Second listening address, HOST:PORT, which requires client certificates. Unset: none. "
        'Only allowed with `client_certificates = "optional"`.',
    )
    warn_before: Duration = Field(
        default=timedelta(days=14),
        ge=timedelta(0),
        le=timedelta(days=365),
        description="Time before the expiry of a certificate during which the log has a warning every day.",
    )

    @model_validator(mode="after")
    def _parts_fit_together(self) -> "TlsSettings":
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key are only allowed together; set both or none")
        accepts = self.client_certificates != "none"
        if accepts and self.certificate is None:
            raise ValueError(f'client_certificates = "{self.client_certificates}" needs certificate and key')
        if accepts != (self.client_ca is not None):
            raise ValueError(
                'client_ca is required with client_certificates = "optional" or "required", and not allowed '
                "without"
            )
        if (self.client_certificates == "optional") != (self.certificate_address is not None):
            raise ValueError(
                'certificate_address is required with client_certificates = "optional", and not allowed '
                "without"
            )
        return self

    @property
    def enabled(self) -> bool:
        """Whether the service uses TLS."""
        return self.certificate is not None

"""Opens the certificates that the settings name, and warns before they expire."""

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from training_service.auth.live import Live
from training_service.auth.pem_files import PemFile
from training_service.auth.tls import ServerTls, read_authorities, read_tls, why_untrusted
from training_service.settings import Settings
from training_service.settings.addresses import host_of

log = logging.getLogger(__name__)

SYSTEM_ROOTS = "system"
"""The value of REPORT_CA for ranks that trust the root certificates of their gRPC library."""

_CHECK_SECONDS = 30
_WARN_AGAIN = timedelta(days=1)


class Certificates:
    """The certificates of the service, read again when their files have changed."""

    def __init__(self, tls: Live[ServerTls], ca: Live[str] | None, warn_before: timedelta) -> None:
        self.tls = tls
        self._ca = ca
        self._warn_before = warn_before
        self._warn_at: dict[str, datetime] = {}

    def report_ca(self) -> str:
        """Return the value of REPORT_CA: the authorities that ranks trust, as PEM, or `system`."""
        return self._ca.get() if self._ca else SYSTEM_ROOTS

    def address_for_ranks(self, address: str | None) -> str | None:
        """Return `address`; None if the certificate is not for its host: ranks would refuse to connect.

        Log a warning if the certificate is for another host, or if ranks might not trust its authority.
        """
        tls = self.tls.get()
        if address is None:
            return None
        host = host_of(address)
        if not tls.covers(host):
            log.warning(
                "server.tls.certificate: it is not for %s, so ranks report by printed lines only; add the "
                "name to the certificate, or set reports.address to a host in the certificate (%s)",
                host,
                _names(tls),
            )
            return None
        if self._ca is None and (reason := why_untrusted(tls, None, host)):
            log.warning(
                "reports.ca: it is not set, and this machine does not trust server.tls.certificate (%s); if "
                "ranks do not trust it either, their report calls fail. Set reports.ca to its authority",
                reason,
            )
        return address

    def ends(self) -> dict[str, datetime]:
        """Return when the certificates of `server.tls` expire. The keys are the names of their settings."""
        tls = self.tls.get()
        ends = {"server.tls.certificate": tls.expires_at}
        if tls.client_ca_expires_at is not None:
            ends["server.tls.client_ca"] = tls.client_ca_expires_at
        return ends

    def problems(self) -> int:
        """Return how many sets of files (TLS, authorities for ranks) have changed and cannot be used."""
        return sum(live.problem is not None for live in (self.tls, self._ca) if live)

    async def watch(self) -> None:
        """Read replaced files, and log warnings about certificates that expire soon, until cancelled."""
        while True:
            for warning in self.warnings(datetime.now(UTC)):
                log.warning("%s", warning)
            if self._ca:
                self._ca.get()
            await asyncio.sleep(_CHECK_SECONDS)

    def warnings(self, now: datetime) -> Iterator[str]:
        """Yield the warnings that are due now. Each warning is due once a day."""
        for setting, end in self.ends().items():
            if now < end - self._warn_before:
                self._warn_at.pop(setting, None)
            elif now >= self._warn_at.get(setting, now):
                self._warn_at[setting] = now + _WARN_AGAIN
                expires = "expired" if now >= end else "expires"
                yield f"{setting}: the certificate {expires} at {end:%Y-%m-%d %H:%M} UTC; replace the file"


def open_certificates(settings: Settings) -> Certificates | None:
    """Return the certificates of the settings; None without TLS. Raises Unusable if they cannot be used."""
    tls = settings.server.tls
    if not tls.enabled:
        return None
    files = _files(settings)
    live = Live("server.tls", [file.path for file in files], lambda: read_tls(*files))
    _check_name(live.get(), settings.reports.address, files[0])
    ca = _open_authorities(settings.reports.ca, live.get()) if settings.reports.ca else None
    return Certificates(live, ca, tls.warn_before)


def read_certificate(settings: Settings) -> ServerTls:
    """Return the certificate of the settings, in which TLS must be enabled.

    Raises Unusable if it cannot be used.
    """
    return read_tls(*_files(settings))


def _files(settings: Settings) -> list[PemFile]:
    tls = settings.server.tls
    given = {"certificate": tls.certificate, "key": tls.key, "client_ca": tls.client_ca}
    return [PemFile(f"server.tls.{name}", path) for name, path in given.items() if path is not None]


def _open_authorities(path: Path, tls: ServerTls) -> Live[str]:
    file = PemFile("reports.ca", path)
    live = Live("reports.ca", [path], lambda: read_authorities(file))
    host = next(iter(tls.names), "").replace("*.", "any.")
    if host and (reason := why_untrusted(tls, live.get(), host)):
        raise file.refused(f"it does not have the authority of server.tls.certificate ({reason})")
    return live


def _check_name(tls: ServerTls, address: str | None, certificate: PemFile) -> None:
    if address is not None and not tls.covers(host_of(address)):
        raise certificate.refused(
            f"the certificate is not for {host_of(address)}, the host of reports.address, but for "
            f"{_names(tls)}"
        )


def _names(tls: ServerTls) -> str:
    return ", ".join(sorted(tls.names)) or "no host"

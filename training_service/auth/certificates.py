"""Callers that are identified by client certificates."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from cryptography import x509

from job_tracker.common.printable import quoted
from job_tracker.domain.errors import NotAllowed

AuthContext = Mapping[str, Iterable[bytes]]
"""The facts about the peer of a connection that gRPC learned in the TLS handshake."""

_REMEMBERED = 1024
_LONGEST_NAME = 512


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity in a client certificate, which gRPC has verified."""

    name: str
    """The SPIFFE id or, without one, the subject, such as `CN=alice,O=Example`."""
    expires_at: datetime

    def seconds_left(self) -> float:
        """Return the seconds until the certificate expires. Raises NotAllowed if it has expired.

        gRPC checks the expiry only when a connection begins, and a connection may outlive its certificate.
        """
        left = self.expires_at.timestamp() - time.time()
        if left <= 0:
            raise self.expired()
        return left

    def expired(self) -> NotAllowed:
        """Return the error for calls after the certificate has expired."""
        return NotAllowed(
            f"the client certificate of {quoted(self.name)} expired at "
            f"{self.expires_at:%Y-%m-%d %H:%M:%S} UTC; connect again with a new one",
            caller=self.name,
        )


def identity_of(context: AuthContext) -> Identity | None:
    """Return the identity of the peer; None without a certificate.

    Raises NotAllowed if the certificate cannot be read, or has no name that the service accepts.
    """
    pem = next(iter(context.get("x509_pem_cert", ())), None)
    if not pem:
        return None
    # The cache finds identities by the certificate, not by the peer's address: another client may connect
    # from the same address and port later.
    return _identity(pem, _only(context, "peer_spiffe_id"), _only(context, "x509_subject"))


@lru_cache(_REMEMBERED)
def _identity(pem: bytes, spiffe_id: str, subject: str) -> Identity:
    name = spiffe_id or subject
    if not name or len(name) > _LONGEST_NAME:
        raise NotAllowed(
            f"the client certificate has no name of 1 to {_LONGEST_NAME} characters; give it a SPIFFE id or "
            "a subject"
        )
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        ends = certificate.not_valid_after_utc
        # gRPC cuts a URI at a NUL byte, so `spiffe_id` may be only the start of the URI, and this start
        # may be another caller's id.
        is_exact = not spiffe_id or _uris_of(certificate) == [spiffe_id]
    except Exception:  # the library raises errors of several kinds
        raise NotAllowed("the client certificate cannot be read; ask its issuer for another one") from None
    if not is_exact or not (name.isascii() and name.isprintable()):
        raise NotAllowed(
            "the name in the client certificate has characters that are not printable ASCII; ask its issuer "
            "for another certificate"
        )
    return Identity(name, ends)


def _uris_of(certificate: x509.Certificate) -> list[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def _only(context: AuthContext, key: str) -> str:
    values = [*context.get(key, ())]
    return values[0].decode(errors="replace") if len(values) == 1 else ""

"""The identity in a client certificate."""

from datetime import timedelta
from pathlib import Path

import pytest

from job_tracker.domain.errors import NotAllowed
from tests.support.certificates import Authority
from training_service.auth.certificates import Identity, identity_of

SPIFFE = b"spiffe://example.org/ns/training/sa/ci"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def pem(authority: Authority) -> bytes:
    return authority.issue(SPIFFE.decode()).certificate


def of(pem: bytes, **context: bytes) -> Identity:
    identity = identity_of({"x509_pem_cert": [pem], **{key: [value] for key, value in context.items()}})
    assert identity is not None
    return identity


def test_a_connection_without_a_certificate_has_no_identity() -> None:
    assert identity_of({}) is None
    assert identity_of({"transport_security_type": [b"ssl"], "x509_pem_cert": []}) is None


def test_the_name_is_the_spiffe_id_or_else_the_subject(pem: bytes) -> None:
    assert of(pem, peer_spiffe_id=SPIFFE, x509_subject=b"CN=a").name == SPIFFE.decode()
    assert of(pem, x509_subject=b"CN=alice,O=Example").name == "CN=alice,O=Example"


@pytest.mark.parametrize("context", [{}, {"x509_subject": b""}, {"x509_subject": b"CN=" + b"x" * 600}])
def test_a_certificate_without_a_usable_name_is_refused(pem: bytes, context: dict[str, bytes]) -> None:
    with pytest.raises(NotAllowed, match="give it a SPIFFE id or a subject"):
        of(pem, **context)


@pytest.mark.parametrize(
    "uri", ["spiffe://example.org/root\0.evil", "spiffe://example.org/root\n", "https://x"]
)
def test_the_beginning_of_a_spiffe_id_is_not_a_name(authority: Authority, uri: str) -> None:
    """Only the part before a NUL byte arrives from gRPC."""
    other = authority.issue(uri).certificate
    with pytest.raises(NotAllowed, match="has characters that are not printable ASCII"):
        of(other, peer_spiffe_id=b"spiffe://example.org/root", x509_subject=b"CN=a")


@pytest.mark.parametrize("name", ["spiffe://example.org/a\nb", "spiffe://example.org/\x1b[2J"])
def test_a_name_with_control_characters_is_refused(authority: Authority, name: str) -> None:
    with pytest.raises(NotAllowed, match="has characters that are not printable ASCII"):
        of(authority.issue(name).certificate, peer_spiffe_id=name.encode())


def test_a_certificate_that_cannot_be_read_is_refused() -> None:
    for pem in (b"x", b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"):
        with pytest.raises(NotAllowed, match="the client certificate cannot be read"):
            of(pem, x509_subject=b"CN=a")


def test_a_certificate_that_has_expired_since_the_handshake_is_refused(tmp_path: Path) -> None:
    expired = Authority(tmp_path).issue(lasts=-timedelta(seconds=1)).certificate
    with pytest.raises(NotAllowed, match="the client certificate of 'CN=a' expired at"):
        of(expired, x509_subject=b"CN=a").seconds_left()

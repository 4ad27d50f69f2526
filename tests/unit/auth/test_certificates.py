"""The identity in a client certificate."""

from datetime import timedelta
from pathlib import Path

import pytest

from job_tracker.domain.errors import NotAllowed
from tests.support.certificates import Authority
from training_service.auth.certificates import Identity, identity_of

SPIFFE = b"spiffe://example.org/ns/training/sa/ci"


@pytest.fixture
def pem(tmp_path: Path) -> bytes:
    return Authority(tmp_path).issue().certificate


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


def test_a_certificate_that_has_expired_since_the_handshake_is_refused(tmp_path: Path) -> None:
    expired = Authority(tmp_path).issue(lasts=-timedelta(seconds=1)).certificate
    with pytest.raises(NotAllowed, match="the client certificate of 'CN=a' expired at"):
        of(expired, x509_subject=b"CN=a").seconds_left()

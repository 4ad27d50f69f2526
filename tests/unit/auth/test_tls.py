"""Checks that the files of TLS belong together, and the names of a certificate."""

from pathlib import Path

import pytest

from tests.support.certificates import CLIENT_ONLY, DAY, Authority, Files
from training_service.auth.live import Unusable
from training_service.auth.pem_files import PemFile
from training_service.auth.tls import ServerTls, read_authorities, read_tls, why_untrusted


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def read(files: Files, client_ca: Path | None = None) -> ServerTls:
    return read_tls(
        PemFile("server.tls.certificate", files.certificate),
        PemFile("server.tls.key", files.key),
        PemFile("server.tls.client_ca", client_ca) if client_ca else None,
    )


def test_a_key_of_another_certificate_is_refused(authority: Authority, tmp_path: Path) -> None:
    one, other = (authority.issue("localhost").write(tmp_path, name) for name in ("one", "other"))
    with pytest.raises(Unusable) as refused:
        read(Files(one.certificate, other.key))
    assert str(refused.value).startswith(
        f"server.tls.key: {other.key}: the key does not fit {one.certificate}, whose first certificate"
    )


def test_a_chain_begins_with_the_servers_certificate(authority: Authority, tmp_path: Path) -> None:
    files = authority.issue("localhost").write(tmp_path, "server")
    own = files.certificate.read_bytes()
    files.certificate.write_bytes(own + authority.certificate)
    assert read(files).names == {"localhost"}
    files.certificate.write_bytes(authority.certificate + own)
    with pytest.raises(Unusable, match="whose first certificate must be the server's"):
        read(files)


def test_an_expired_certificate_or_authority_is_refused(authority: Authority, tmp_path: Path) -> None:
    old = authority.issue("localhost", lasts=-DAY).write(tmp_path, "old")
    new = authority.issue("localhost").write(tmp_path, "new")
    with pytest.raises(Unusable, match=r"server.tls.certificate: .* the certificate expired at"):
        read(old)
    with pytest.raises(Unusable, match=r"server.tls.client_ca: .* the certificate expired at"):
        read(new, client_ca=old.certificate)


def test_of_several_authorities_some_may_have_expired(authority: Authority, tmp_path: Path) -> None:
    old = authority.issue(lasts=-DAY)
    files = authority.issue("localhost").write(tmp_path, "server")
    (tmp_path / "both.pem").write_bytes(old.certificate + authority.certificate)
    found = read(files, client_ca=tmp_path / "both.pem")
    assert found.client_ca == authority.certificate
    assert found.client_ca_expires_at is not None
    assert found.client_ca_expires_at > found.expires_at


@pytest.mark.parametrize(
    ("trusted", "host", "reason"),
    [
        ("authority", "localhost", None),
        ("server", "localhost", None),
        ("authority", "127.0.0.1", "IP address mismatch, certificate is not valid for '127.0.0.1'."),
        ("other", "localhost", "unable to get local issuer certificate"),
        (None, "localhost", "unable to get local issuer certificate"),
    ],
)
def test_whether_a_client_trusts_the_server_is_tried(
    authority: Authority, tmp_path: Path, trusted: str | None, host: str, reason: str | None
) -> None:
    Authority(tmp_path, "other")
    tls = read(authority.issue("localhost").write(tmp_path, "server"))
    authorities = (tmp_path / f"{trusted}.pem").read_text() if trusted else None
    assert why_untrusted(tls, authorities, host) == reason


def test_a_certificate_for_clients_is_refused(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="the certificate is not for servers"):
        read(authority.issue("localhost", usage=CLIENT_ONLY).write(tmp_path, "client"))


@pytest.mark.parametrize(
    ("host", "covered"),
    [
        ("train.example", True),
        ("TRAIN.example", True),
        ("train.example.", True),
        ("a.pods.example", True),
        ("a.b.pods.example", False),
        ("pods.example", False),
        ("127.0.0.1", True),
        ("127.0.0.2", False),
        ("::1", True),
        ("0:0:0:0:0:0:0:1", True),
        ("somebody", False),
    ],
)
def test_a_host_is_covered_as_clients_check_it(
    authority: Authority, tmp_path: Path, host: str, covered: bool
) -> None:
    issued = authority.issue("train.example", "*.pods.example", "127.0.0.1", "::1", subject="somebody")
    assert read(issued.write(tmp_path, "server")).covers(host) is covered


def test_a_certificate_without_names_covers_no_host(authority: Authority, tmp_path: Path) -> None:
    assert not read(authority.issue(subject="localhost").write(tmp_path, "server")).covers("localhost")


def test_only_the_certificates_of_a_file_are_passed_on(authority: Authority, tmp_path: Path) -> None:
    issued = authority.issue("localhost")
    (tmp_path / "mixed.pem").write_bytes(b"a comment\n" + issued.key + authority.certificate)
    text = read_authorities(PemFile("reports.ca", tmp_path / "mixed.pem"))
    assert text.encode() == authority.certificate

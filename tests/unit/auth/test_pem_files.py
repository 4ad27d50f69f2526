"""Certificates and keys that cannot be used are refused with setting, file and reason."""

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from tests.support.certificates import DAY, Authority, Files
from training_service.auth.live import Unusable
from training_service.auth.pem_files import PemFile


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def files(authority: Authority, tmp_path: Path) -> Files:
    return authority.issue("localhost").write(tmp_path, "server")


def certificate_in(path: Path) -> None:
    PemFile("server.tls.certificate", path).certificates()


def key_in(path: Path) -> None:
    PemFile("server.tls.key", path).private_key()


def damaged(path: Path) -> None:
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([lines[0], b"MIIB" * 16, lines[-1]]))


def replaced(make: Callable[[Path], object]) -> Callable[[Path], object]:
    """Other objects in place of the file."""

    def replace(path: Path) -> None:
        path.unlink()
        make(path)

    return replace


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (Path.unlink, "cannot be read (No such file or directory)"),
    "a folder": (replaced(Path.mkdir), "it is not a regular file"),
    "a FIFO": (replaced(os.mkfifo), "it is not a regular file"),
    "a device": (replaced(lambda path: path.symlink_to("/dev/null")), "it is not a regular file"),
    "a circle": (replaced(lambda path: path.symlink_to(path)), "cannot be read (Too many levels"),
    "empty": (lambda path: path.write_bytes(b""), "it has no readable"),
    "garbage": (lambda path: path.write_bytes(os.urandom(2000)), "it has no readable"),
    "damaged": (damaged, "it has no readable"),
    "too large": (lambda path: path.write_bytes(b" " * (2 << 20)), "it is larger than 1 MiB"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("what", ["certificate", "key"])
def test_a_file_that_cannot_be_used_is_named_with_its_setting(files: Files, what: str, damage: str) -> None:
    path, read = (files.key, key_in) if what == "key" else (files.certificate, certificate_in)
    path.chmod(0o600)
    apply, reason = DAMAGES[damage]
    apply(path)
    with pytest.raises(Unusable) as refused:
        read(path)
    assert str(refused.value).startswith(f"server.tls.{what}: {path}: {reason}")
    assert "\n" not in str(refused.value)


def test_a_key_that_every_user_may_read_is_refused_with_the_remedy(files: Files) -> None:
    files.key.chmod(0o644)
    with pytest.raises(Unusable, match=r"every user may use the key \(mode 0644\); chmod o= "):
        key_in(files.key)
    files.key.chmod(0o640)  # as in a secret that Kubernetes mounts with fsGroup
    key_in(files.key)


def test_an_encrypted_key_is_refused(authority: Authority, tmp_path: Path) -> None:
    files = authority.issue("localhost", password=b"secret").write(tmp_path, "locked")
    with pytest.raises(Unusable, match="the key is encrypted; give one without a password"):
        key_in(files.key)


def test_a_kind_of_key_that_clients_do_not_accept_is_refused(authority: Authority, tmp_path: Path) -> None:
    for key in (ed25519.Ed25519PrivateKey.generate(), rsa.generate_private_key(65537, 1024)):
        files = authority.issue("localhost", key=key).write(tmp_path, "odd")
        with pytest.raises(Unusable, match="the key must be ECDSA, or RSA with at least 2048 bits"):
            key_in(files.key)


def test_an_rsa_key_is_accepted(authority: Authority, tmp_path: Path) -> None:
    key_in(authority.issue("localhost", key=rsa.generate_private_key(65537, 2048)).write(tmp_path, "rsa").key)


def test_the_other_file_in_its_place_is_refused(files: Files) -> None:
    files.certificate.chmod(0o600)
    with pytest.raises(Unusable, match="it has no readable private key"):
        key_in(files.certificate)
    with pytest.raises(Unusable, match="it has no readable certificate"):
        certificate_in(files.key)


@pytest.mark.parametrize(
    ("lasts", "since", "reason"),
    [
        (-timedelta(seconds=1), DAY, "the certificate expired at 20"),
        (30 * DAY, -DAY, "the certificate is not valid before 20"),
    ],
)
def test_a_certificate_outside_of_its_time_is_refused(
    authority: Authority, tmp_path: Path, lasts: timedelta, since: timedelta, reason: str
) -> None:
    path = authority.issue("localhost", lasts=lasts, since=since).write(tmp_path, "x").certificate
    file = PemFile("server.tls.certificate", path)
    _, [certificate] = file.certificates()
    with pytest.raises(Unusable, match=reason):
        file.check_time(certificate)

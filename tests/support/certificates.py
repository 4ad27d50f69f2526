"""Certificates for tests: an authority, and the files that it issues."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

DAY = timedelta(days=1)
LOCAL = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class Issued:
    """A certificate with its key, as PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> "Files":
        """Write certificate and key into a folder.

        Each file is replaced in one step, as a careful administrator does.
        """
        files = Files(folder / f"{name}.pem", folder / f"{name}.key")
        replace(files.key, self.key, 0o600)
        replace(files.certificate, self.certificate)
        return files


@dataclass(frozen=True)
class Files:
    """The files of a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """An authority that issues certificates."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = _name(name)
        self.certificate = self.sign(
            self.name, self.key, [(x509.BasicConstraints(True, None), True)], DAY, 100 * DAY
        )
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self.certificate)

    def issue(
        self,
        *names: str,
        subject: str | None = "somebody",
        lasts: timedelta = 30 * DAY,
        since: timedelta = DAY,
        usage: ObjectIdentifier | None = None,
        key: CertificateIssuerPrivateKeyTypes | None = None,
        password: bytes | None = None,
    ) -> Issued:
        """Issue a certificate for these host names, IP addresses and URIs."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        extensions: list[tuple[x509.ExtensionType, bool]] = []
        if names:
            extensions.append((x509.SubjectAlternativeName([_general(name) for name in names]), False))
        if usage:
            extensions.append((x509.ExtendedKeyUsage([usage]), False))
        subject_name = _name(subject) if subject else x509.Name([])
        encryption = BestAvailableEncryption(password) if password else NoEncryption()
        return Issued(
            self.sign(subject_name, key, extensions, since, lasts),
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption),
        )

    def sign(
        self,
        subject: x509.Name,
        key: CertificateIssuerPrivateKeyTypes,
        extensions: Sequence[tuple[x509.ExtensionType, bool]],
        since: timedelta,
        lasts: timedelta,
        *,
        by: CertificateIssuerPrivateKeyTypes | None = None,
    ) -> bytes:
        """Return a certificate that names the authority as its issuer.

        It is signed with the authority's key, or with `by`.
        """
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now - since, now + lasts - DAY))
            .not_valid_after(now + lasts)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(by or self.key, hashes.SHA256()).public_bytes(Encoding.PEM)


def replace(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replace a file in one step."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(content)
    fresh.chmod(mode)
    fresh.replace(path)


def credentials(authority: Authority, client: Issued | None = None) -> grpc.ChannelCredentials:
    """Return the credentials of a client that trusts the authority, and has the certificate `client` if it
    is given.
    """
    if client is None:
        return grpc.ssl_channel_credentials(authority.certificate)
    return grpc.ssl_channel_credentials(authority.certificate, client.key, client.certificate)


CLIENT_ONLY = ExtendedKeyUsageOID.CLIENT_AUTH


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general(name: str) -> x509.GeneralName:
    if "://" in name:
        return x509.UniformResourceIdentifier(name)
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)

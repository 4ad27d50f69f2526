"""Certificates and keys in PEM files that settings name. Each error names setting, file and reason."""

import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from training_service.auth.live import Unusable

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

_LARGEST_FILE = 1 << 20
_OTHERS = stat.S_IRWXO
_SMALLEST_RSA_KEY = 2048


@dataclass(frozen=True, slots=True)
class PemFile:
    """A PEM file, and the setting that names it."""

    setting: str
    path: Path

    def certificates(self) -> tuple[bytes, list[x509.Certificate]]:
        """Return the bytes of the file, and the certificates in it.

        Raises Unusable if the file cannot be read, or has no certificate.
        """
        content = self._content()
        try:
            return content, x509.load_pem_x509_certificates(content)
        except ValueError:
            raise self.refused(
                "it has no readable certificate; it must be PEM (-----BEGIN CERTIFICATE-----)"
            ) from None

    def private_key(self) -> tuple[bytes, PrivateKey]:
        """Return the bytes of the file, and its key. Raises Unusable, for example if others may read it."""
        content = self._content(secret=True)
        try:
            key = load_pem_private_key(content, password=None)
        except TypeError:
            raise self.refused(
                "the key is encrypted; give one without a password, in a file of mode 0600"
            ) from None
        except Exception:  # the library raises errors of several kinds, which may quote the key
            raise self.refused(
                "it has no readable private key; it must be PEM (-----BEGIN PRIVATE KEY-----)"
            ) from None
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return content, key
        if isinstance(key, rsa.RSAPrivateKey) and key.key_size >= _SMALLEST_RSA_KEY:
            return content, key
        raise self.refused(f"the key must be ECDSA, or RSA with at least {_SMALLEST_RSA_KEY} bits")

    def refused(self, reason: str) -> Unusable:
        """Return the error for this file."""
        return Unusable(f"{self.setting}: {self.path}: {reason}")

    def check_time(self, certificate: x509.Certificate) -> None:
        """Raise Unusable if the certificate is not valid now."""
        now = datetime.now(UTC)
        if now >= certificate.not_valid_after_utc:
            raise self.refused(
                f"the certificate expired at {_moment(certificate.not_valid_after_utc)}; renew it"
            )
        if now < certificate.not_valid_before_utc:
            begin = _moment(certificate.not_valid_before_utc)
            raise self.refused(f"the certificate is not valid before {begin}; check the clock")

    def _content(self, *, secret: bool = False) -> bytes:
        try:
            # Opening a FIFO or a device must not block.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise self.refused(f"cannot be read ({error.strerror})") from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise self.refused("it is not a regular file")
            if secret and status.st_mode & _OTHERS:
                mode = stat.S_IMODE(status.st_mode)
                raise self.refused(f"every user may use the key (mode {mode:04o}); chmod o= {self.path}")
            if status.st_size > _LARGEST_FILE:
                raise self.refused(f"it is larger than {_LARGEST_FILE >> 20} MiB")
            return os.pread(descriptor, _LARGEST_FILE, 0)
        except OSError as error:
            raise self.refused(f"cannot be read ({error.strerror})") from None
        finally:
            os.close(descriptor)


def _moment(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")

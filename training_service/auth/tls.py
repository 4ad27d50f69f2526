"""The service's own certificate, its key, and the authorities of client certificates."""

import ipaddress
import os
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from training_service.auth.live import Live
from training_service.auth.pem_files import PemFile

_FLIGHTS = 4
"""The number of turns of each side in a handshake: more than TLS needs."""


@dataclass(frozen=True)
class ServerTls:
    """The key and certificates of a server. They have been checked, and belong together."""

    chain: bytes
    """The server's certificate, and the certificates of the authorities between it and a root, as PEM."""
    key: bytes
    leaf: x509.Certificate
    client_ca: bytes | None = None
    """The authorities of client certificates, as PEM; None if no client certificates are accepted."""
    client_ca_expires_at: datetime | None = None
    """The earliest time at which one of these authorities expires. Already expired authorities do not
    count."""

    @property
    def expires_at(self) -> datetime:
        """The time at which the server's certificate expires."""
        return self.leaf.not_valid_after_utc

    @cached_property
    def names(self) -> frozenset[str]:
        """Names and IP addresses of the server, in lower case. A name may begin with `*.`."""
        try:
            names = self.leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return frozenset()  # clients no longer look at the common name
        hosts = map(str.lower, names.get_values_for_type(x509.DNSName))
        return frozenset([*hosts, *map(str, names.get_values_for_type(x509.IPAddress))])

    def covers(self, host: str) -> bool:
        """Return whether clients that connect to this name or IP address accept the certificate."""
        host = host.lower().rstrip(".")
        try:
            return str(ipaddress.ip_address(host)) in self.names
        except ValueError:
            return bool({host, "*." + host.partition(".")[2]} & self.names)

    @cached_property
    def context(self) -> ssl.SSLContext:
        """A context for servers that do not speak gRPC. It asks for no client certificates."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        # Python loads certificates only from files. The configured files may have changed since they were
        # checked, so write the checked content to a file in memory.
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        with open(descriptor, "wb") as file:  # noqa: PTH123  # a descriptor
            file.write(self.chain + b"\n" + self.key)
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        return context


def read_tls(certificate: PemFile, key: PemFile, client_ca: PemFile | None = None) -> ServerTls:
    """Read and check the files. Raises Unusable if one cannot be used, or if they do not belong together."""
    chain_pem, chain = certificate.certificates()
    leaf = chain[0]
    key_pem, private_key = key.private_key()
    if leaf.public_key() != private_key.public_key():
        raise key.refused(
            f"the key does not fit {certificate.path}, whose first certificate must be the server's"
        )
    certificate.check_time(leaf)
    _check_use(certificate, leaf)
    if client_ca is None:
        return ServerTls(chain_pem, key_pem, leaf)
    authorities = _valid_authorities(client_ca)
    ends = min(each.not_valid_after_utc for each in authorities)
    return ServerTls(chain_pem, key_pem, leaf, _pem(authorities).encode(), ends)


def _check_use(file: PemFile, leaf: x509.Certificate) -> None:
    try:
        uses = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    except ValueError as error:
        raise file.refused(f"the certificate has an extension that cannot be read ({error})") from None
    if not {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE} & set(uses):
        raise file.refused("the certificate is not for servers (extended key usage serverAuth)")


def server_credentials(live: Live[ServerTls], *, client_certificates: bool = False) -> grpc.ServerCredentials:
    """Return the credentials of a listener. Each new connection uses the newest certificate.

    With `client_certificates`, a client needs a certificate that an authority in `client_ca` has signed.
    """
    return grpc.dynamic_ssl_server_credentials(
        _configuration(live.get(), client_certificates),
        _fetcher(live, client_certificates),  # type: ignore[arg-type]  # the stubs forget that None is allowed
        client_certificates,
    )


def _fetcher(
    live: Live[ServerTls], client_certificates: bool
) -> Callable[[], grpc.ServerCertificateConfiguration | None]:
    """Return a function that gRPC calls for each connection, in its own threads.

    The returned function returns None if the certificates have not changed since its last call.
    """
    used = live.get()

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal used
        newest = live.get()
        if newest is used:
            return None
        used = newest
        return _configuration(newest, client_certificates)

    return fetch


def _configuration(tls: ServerTls, client_certificates: bool) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(tls.key, tls.chain)], tls.client_ca if client_certificates else None
    )


def read_authorities(file: PemFile) -> str:
    """Return the certificates of the authorities in a file, as PEM, without those that have expired.

    Raises Unusable if the file cannot be used, or if all its certificates have expired.
    """
    return _pem(_valid_authorities(file))


def _valid_authorities(file: PemFile) -> list[x509.Certificate]:
    """Return the authorities in the file that have not expired. Raises Unusable if there is none.

    Expired ones are ignored, since the file may also have their successors.
    """
    _, authorities = file.certificates()
    now = datetime.now(UTC)
    valid = [each for each in authorities if now < each.not_valid_after_utc]
    if not valid:
        file.check_time(authorities[0])
    return valid


def _pem(certificates: Iterable[x509.Certificate]) -> str:
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)


def why_untrusted(tls: ServerTls, authorities: str | None, host: str) -> str | None:
    """Return why a client with these authorities refuses the server at this host.

    None: the client accepts the server. Without `authorities`, the client trusts the authorities of this
    machine. The handshake is made in memory.
    """
    context = ssl.create_default_context(cadata=authorities)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as gRPC does
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname=host)
    server = tls.context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_FLIGHTS):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
            except ssl.SSLError as error:
                return str(error.reason)
    return None

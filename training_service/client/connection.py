"""The address of the service, and the encryption of connections to it.

Each value comes from the first of these sources that has it: argument, environment variable, configuration
file.
"""

import os
import ssl
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import grpc

from training_service.client.errors import InvalidRequest

ADDRESS_VARIABLE = "TRAINING_SERVICE_ADDRESS"
CA_VARIABLE = "TRAINING_SERVICE_CA"
CERT_VARIABLE = "TRAINING_SERVICE_CERT"
KEY_VARIABLE = "TRAINING_SERVICE_KEY"
SERVER_NAME_VARIABLE = "TRAINING_SERVICE_SERVER_NAME"
PROJECT_VARIABLE = "TRAINING_PROJECT"
DEFAULT_ADDRESS = "127.0.0.1:51001"
"""The address at which a service listens by default."""
SYSTEM_ROOTS = "system"
"""This value of `ca` stands for the authorities that gRPC trusts by default."""

_VARIABLES = {
    "ca": CA_VARIABLE,
    "cert": CERT_VARIABLE,
    "key": KEY_VARIABLE,
    "server_name": SERVER_NAME_VARIABLE,
}
_LARGEST_FILE = 1 << 20


@dataclass(frozen=True)
class Connection:
    """The address of a service, and the files of TLS. TLS is used if `ca` or `cert` is given."""

    address: str
    ca: str | None = None
    """A PEM file with the authorities that may sign the service's certificate, or `system`."""
    cert: str | None = None
    """A PEM file with the client's certificate, and the intermediate certificates up to a root."""
    key: str | None = None
    """A PEM file with the key of `cert`."""
    server_name: str | None = None
    """The name in the service's certificate, if it is not the host of `address`."""

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection uses TLS."""
        return bool(self.ca or self.cert)

    @cached_property
    def credentials(self) -> grpc.ChannelCredentials | None:
        """The credentials of a channel; None without TLS.

        Raises InvalidRequest if a file cannot be used, if only one of `cert` and `key` is given, or if
        `server_name` is given without TLS.
        """
        if bool(self.cert) != bool(self.key):
            raise InvalidRequest("cert and key are only allowed together; give both files")
        if not self.is_encrypted:
            if self.server_name:
                raise InvalidRequest(f"server_name: {self.server_name!r} needs TLS; give ca, too")
            return None
        roots = None
        if self.ca and self.ca != SYSTEM_ROOTS:
            roots = _read("ca", self.ca)
            _check_authorities(self.ca, roots)
        if not (self.cert and self.key):
            return grpc.ssl_channel_credentials(roots)
        chain, key = _read("cert", self.cert), _read("key", self.key)
        _check_pair(self.cert, self.key)
        return grpc.ssl_channel_credentials(roots, key, chain)


def connection(
    address: str | None = None,
    *,
    ca: str | os.PathLike[str] | None = None,
    cert: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    server_name: str | None = None,
) -> Connection:
    """Return the connection to use. Raises InvalidRequest if the configuration file cannot be used.

    The file is `training-service/client.toml` in XDG_CONFIG_HOME (by default, `~/.config`). The file's values
    for TLS are used only for the file's address or, if the file has none, for DEFAULT_ADDRESS.
    """
    file = _configured()
    configured = file.get("address", DEFAULT_ADDRESS)
    address = address or os.environ.get(ADDRESS_VARIABLE) or configured
    given = {"ca": ca, "cert": cert, "key": key, "server_name": server_name}
    found: dict[str, str | None] = {}
    for name, value in given.items():
        of_file = file.get(name) if address == configured else None
        found[name] = (os.fspath(value) if value else os.environ.get(_VARIABLES[name])) or of_file
    return Connection(address, **found)


def project_or_default(project: str | None) -> str:
    """Return the given project or, if it is None, the project in the variable TRAINING_PROJECT.

    Without either, return "", which stands for the caller's default project.
    """
    return os.environ.get(PROJECT_VARIABLE, "") if project is None else project


def _configured() -> dict[str, str]:
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    path = Path(home) / "training-service" / "client.toml"
    try:
        content = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidRequest(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise InvalidRequest(f"{path}: not valid TOML ({error})") from None
    allowed = ("address", *_VARIABLES)
    for name, value in content.items():
        if name not in allowed or not isinstance(value, str):
            raise InvalidRequest(
                f"{path}: {name}: not allowed; allowed are strings with the keys {', '.join(allowed)}"
            )
    # A relative path is relative to the folder of the configuration file.
    return {
        name: str(path.parent / Path(value).expanduser())
        if name in ("ca", "cert", "key") and value != SYSTEM_ROOTS
        else value
        for name, value in content.items()
    }


def _read(name: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise InvalidRequest(f"{name}: {path} cannot be read ({error.strerror})") from None
    if len(content) > _LARGEST_FILE:
        raise InvalidRequest(f"{name}: {path} is larger than {_LARGEST_FILE >> 20} MiB")
    return content


def _check_authorities(path: str, content: bytes) -> None:
    # If the file had no certificates, gRPC would trust its own authorities, or fail without giving a reason.
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=content.decode())
    except (ssl.SSLError, ValueError):
        raise InvalidRequest(
            f"ca: {path} has no readable certificate; it must be PEM (-----BEGIN CERTIFICATE-----)"
        ) from None


def _check_pair(cert: str, key: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def no_password() -> str:
        raise InvalidRequest(f"key: {key} is encrypted; give a key without a password")

    try:
        context.load_cert_chain(cert, key, no_password)
    except ssl.SSLError as error:
        reason = (
            "the key does not fit the certificate"
            if error.reason == "KEY_VALUES_MISMATCH"
            else "not readable PEM"
        )
        raise InvalidRequest(f"cert: {cert} with key: {key}: {reason}") from None

"""The token that calls carry, and its sources.

The token comes from the first of these sources that has one: argument, TRAINING_SERVICE_TOKEN, the file in
TRAINING_SERVICE_TOKEN_FILE, the credentials that `trainctl login` stored, and the operator's token of a
service on this machine. The operator's token is only for clients without a certificate. The token is read
again for each call, so a replaced token is used at once.
"""

import ipaddress
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from training_service.client.connection import Connection
from training_service.client.errors import InvalidRequest
from training_service.client.requests import Metadata

TOKEN_VARIABLE: Final = "TRAINING_SERVICE_TOKEN"  # noqa: S105  # a name, not a secret
TOKEN_FILE_VARIABLE: Final = "TRAINING_SERVICE_TOKEN_FILE"  # noqa: S105  # a name, not a secret
_LARGEST_FILE = 1 << 20
_LONGEST_TOKEN = 4096
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_BOTH = frozenset({"127.0.0.1", "::1"})
_LOOPBACK: Final = {"localhost": _BOTH, "::": _BOTH, "0.0.0.0": frozenset({"127.0.0.1"})}  # noqa: S104
"""The loopback addresses for which each of these hosts stands."""


class Credentials:
    """Finds the token for the calls of a client. It never keeps the content of a file."""

    def __init__(
        self,
        connection: Connection,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self._connection = connection
        self._token = token
        self._file = token_file

    def metadata(self) -> Metadata:
        """Return the metadata with the token; empty if there is no token.

        Raises InvalidRequest if a file or the token is not valid, or if the token would be sent to another
        machine without encryption.
        """
        for find in self._sources():
            if token := find():
                return (("authorization", f"Bearer {self._checked(token)}"),)
        return ()

    def _sources(self) -> Iterator[Callable[[], str | None]]:
        if self._token is not None:
            yield lambda: self._token
        elif file := self._file:
            yield lambda: _first_line("token_file", Path(file))
        elif token := os.environ.get(TOKEN_VARIABLE):
            yield lambda: token
        elif path := os.environ.get(TOKEN_FILE_VARIABLE):
            yield lambda: _first_line(TOKEN_FILE_VARIABLE, Path(path))
        else:
            yield lambda: stored_tokens().get(self._connection.address)
            if not self._connection.cert:  # a caller with a certificate does not want to be the operator
                yield lambda: _operator_token(self._connection.address)

    def _checked(self, token: str) -> str:
        if len(token) > _LONGEST_TOKEN or not (token.isascii() and token.isprintable()) or " " in token:
            raise InvalidRequest(
                f"the token is not valid ({len(token)} characters): it must have at most {_LONGEST_TOKEN} "
                "printable ASCII characters and no spaces"
            )
        if not (self._connection.is_encrypted or is_loopback(self._connection.address)):
            raise InvalidRequest(
                f"address: the token would be sent to {self._connection.address} without encryption; give "
                "ca, the authorities of the service's certificate"
            )
        return token


def is_loopback(address: str) -> bool:
    """Return whether all hosts of an address are loopback hosts. A UNIX socket counts as loopback, too."""
    if address.startswith("unix:"):
        return True
    return all(_is_loopback_host(place.rpartition(":")[0].strip("[]")) for place in _places(address))


def _places(address: str) -> list[str]:
    """Return each HOST:PORT of a gRPC address."""
    target = address.removeprefix("dns:///").removeprefix("ipv4:").removeprefix("ipv6:")
    return [place.strip() for place in target.split(",")]


def _is_loopback_host(host: str) -> bool:
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def credentials_path() -> Path:
    """Return the path of the file in which `trainctl login` stores tokens.

    It is training-service/credentials in XDG_CONFIG_HOME or, without this variable, in ~/.config.
    """
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "training-service" / "credentials"


def stored_tokens() -> dict[str, str]:
    """Return the stored tokens by address. Raises InvalidRequest if the file cannot be used."""
    path = credentials_path()
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & _OTHERS:
                raise InvalidRequest(f"{path}: other users may read it; chmod 600 {path}")
            found = json.loads(file.read(_LARGEST_FILE))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidRequest(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        found = None  # the file has tokens, so no message may quote it
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise InvalidRequest(
            f"{path}: not the file that `trainctl login` writes; remove it, and log in again"
        )
    return found


def store_token(address: str, token: str | None) -> bool:
    """Store the token of an address; None removes it.

    Return whether a token of the address was stored before. Only this user can read the file in which tokens
    are stored. Raises InvalidRequest if the file cannot be used.
    """
    path = credentials_path()
    with _locked(path):
        found = stored_tokens()
        before = found.pop(address, None)
        if token is not None:
            found[address] = token
        fresh = path.with_name(f"{path.name}.new")
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w") as file:  # noqa: PTH123  # not a path, but a descriptor
            json.dump(found, file, indent=1)
        fresh.replace(path)
        return before is not None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    import fcntl

    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
    except OSError as error:
        raise InvalidRequest(f"{path}: cannot be written ({error.strerror})") from None


def _operator_token(address: str) -> str | None:
    """Return the operator's token that this user's service on this machine wrote; None if there is none.

    The token is returned only if the service listens at this address.
    """
    if not is_loopback(address):
        return None
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    path = Path(home) / "training-service" / "operator-token"
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
            return None
        token, place, *_ = path.read_text().splitlines()
    except (OSError, ValueError):
        return None  # there is no such file, or it cannot be used
    return token if all(_serves(place, each) for each in _places(address)) else None


def _serves(place: str, asked: str) -> bool:
    """Return whether a service that listens at `place` gets all calls to the loopback address `asked`.

    At another loopback address, even with the same port, a program of another user may listen.
    """
    hosts, port = _hosts_and_port(place)
    hosts_asked, port_asked = _hosts_and_port(asked)
    return port == port_asked and hosts_asked <= hosts


def _hosts_and_port(place: str) -> tuple[frozenset[str], str]:
    """Return the addresses for which the host of HOST:PORT stands, and the port.

    Only `localhost`, `::` and `0.0.0.0` stand for other addresses: those of the loopback interface.
    """
    name, _, port = place.rpartition(":")
    host = name.strip("[]").lower()
    return _LOOPBACK.get(host, frozenset({host})), port


def _first_line(name: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE).decode().strip()
    except OSError as error:
        raise InvalidRequest(f"{name}: {path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"{name}: {path} is not text") from None
    if not content:
        raise InvalidRequest(f"{name}: {path} is empty; write the token to it")
    return content.splitlines()[0].strip()

"""trainctl login, logout and whoami."""

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from training_service._generated.access_service_pb2 import WhoAmIResponse
from training_service.client.cli.render import access
from training_service.client.cli.session import session_of
from training_service.client.credentials import credentials_path, store_token
from training_service.client.errors import InvalidRequest

_LARGEST_TOKEN_FILE = 4096


def login(
    context: typer.Context,
    file: Annotated[
        str,
        typer.Option(
            "--token",
            metavar="FILE",
            help="The file with the token; `-`: standard input, without echo on a terminal.",
        ),
    ] = "-",
) -> None:
    """Check a token, and store it for the service's address.

    Never give the token itself as an argument: other users of this machine can see arguments.
    """
    session = session_of(context)
    text = _read(file)
    with session.client(token=text) as client:
        caller = client.access.whoami()
        store_token(client.address, text)
    session.output.show(caller, access.caller, access.caller)
    session.output.note(f"the token is stored in {credentials_path()}, for {client.address}")


def logout(context: typer.Context) -> None:
    """Remove the stored token for the service's address. To make it invalid, use `trainctl token revoke`."""
    session = session_of(context)
    address = session.connection.address
    known = store_token(address, None)
    session.output.note(f"removed the token of {address}" if known else f"there was no token of {address}")


def whoami(context: typer.Context) -> None:
    """Show your name and your roles, as the service knows them."""
    session = session_of(context)
    with session.client() as client:
        caller: WhoAmIResponse = client.access.whoami()
    session.output.show(caller, access.caller, access.caller)


def _read(path: str) -> str:
    """Return the token in the file; `-` is standard input. Raises InvalidRequest if no token can be read."""
    try:
        if path != "-":
            with Path(path).open() as file:
                text = file.read(_LARGEST_TOKEN_FILE)
        elif sys.stdin.isatty():
            text = getpass.getpass("Token: ")
        else:
            text = sys.stdin.read(_LARGEST_TOKEN_FILE)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        # The path is not quoted, since it may be a token that was given by mistake.
        raise InvalidRequest(f"--token: the file cannot be read ({reason})") from None
    if not text.strip():
        raise InvalidRequest("--token: there is no token; give a file, or `-` for standard input")
    return text.split()[0]

"""The token of the operator, in a file that only the service's user can read."""

import os
from pathlib import Path

from job_tracker.access import tokens

FILE_NAME = "operator-token"


def write_operator_token(folder: Path, address: str) -> bytes:
    """Write a new token and the service's address to FILE_NAME in the folder; return the token's digest.

    Each start of the service replaces the file, and clients read it again for each call. Clients send the
    token only to loopback addresses at which the service listens, according to the address in the file. So
    other programs do not get the token. Raises OSError if the file cannot be written.
    """
    made = tokens.new_token(tokens.OPERATOR_ID)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = folder / f"{FILE_NAME}.new"
    fresh.unlink(missing_ok=True)
    # Do not follow a link, and never let others read the file.
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w") as file:  # noqa: PTH123  # a descriptor
        file.write(f"{made.text}\n{address}\n")
    fresh.replace(folder / FILE_NAME)
    return made.digest


def remove_operator_token(folder: Path) -> None:
    """Remove the file that an earlier start of the service may have written: callers now need no token."""
    (folder / FILE_NAME).unlink(missing_ok=True)

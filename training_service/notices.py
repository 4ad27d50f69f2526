"""Tells systemd that the service is ready or is stopping (Type=notify; man sd_notify)."""

import logging
import os
import socket

log = logging.getLogger(__name__)

READY = "READY=1"
STOPPING = "STOPPING=1"


def notify(state: str) -> None:
    """Send the state to the service manager, if there is one. A failure is only logged: it harms no job."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # a name without a file (man 7 unix)
        address = f"\0{address[1:]}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
            manager.connect(address)
            manager.sendall(state.encode())
    except OSError as error:
        log.warning("NOTIFY_SOCKET: the service manager cannot be reached: %s", error)

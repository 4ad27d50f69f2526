"""Where a group meets, and waiting there within a bound."""

import ipaddress
import socket
import time
from dataclasses import dataclass
from typing import Self

from trainer_kit import environment
from trainer_kit.errors import GroupError

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0


@dataclass(frozen=True)
class Meeting:
    """Where a group comes together, and for how long its processes wait for each other."""

    host: str
    port: int
    timeout: int
    """Seconds; bounds the joining, and every exchange after it."""

    @classmethod
    def from_environment(cls) -> Self:
        """Reads MASTER_ADDR, MASTER_PORT and GROUP_TIMEOUT (seconds)."""
        return cls(
            host=environment.text("MASTER_ADDR"),
            port=environment.integer("MASTER_PORT", default=12356, at_least=1, at_most=65_535),
            timeout=patience(),
        )

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def on_loopback(self) -> bool:
        """Whether all processes of the group are on one machine, and keep to it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def patience() -> int:
    """Seconds that processes wait for each other, when they join and in every exchange: GROUP_TIMEOUT."""
    return environment.integer("GROUP_TIMEOUT", default=600, at_least=1, at_most=86_400)


def await_master(meeting: Meeting, *, connect: bool) -> None:
    """Waits until the master's name resolves and, to `connect`, its port accepts.

    Raises GroupError when it does not within the meeting's timeout.
    """
    deadline = time.monotonic() + meeting.timeout
    pause = FIRST_PAUSE
    while True:
        try:
            if connect:
                patience = max(deadline - time.monotonic(), FIRST_PAUSE)
                socket.create_connection((meeting.host, meeting.port), timeout=patience).close()
            else:
                socket.getaddrinfo(meeting.host, meeting.port)
        except OSError as error:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise unreachable(meeting, error) from error
            time.sleep(min(pause, remaining))
            pause = min(2 * pause, LONGEST_PAUSE)
        else:
            return


def unreachable(meeting: Meeting, error: OSError) -> GroupError:
    """That the master did not come in time, and how it showed last."""
    return GroupError(f"could not reach the master at {meeting} within {meeting.timeout} s: {error}")

"""The address at which a group meets, and a function that waits there for the master, with a time-out."""

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
    """The address at which a group meets, and the time for which its processes wait for each other."""

    host: str
    port: int
    timeout: int
    """The time in seconds for which joining and every later exchange wait for other processes."""

    @classmethod
    def from_environment(cls) -> Self:
        """Read MASTER_ADDR, MASTER_PORT and GROUP_TIMEOUT (seconds)."""
        return cls(
            host=environment.text("MASTER_ADDR"),
            port=environment.integer("MASTER_PORT", default=12356, at_least=1, at_most=65_535),
            timeout=patience(),
        )

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def on_loopback(self) -> bool:
        """Whether all processes of the group are on one machine and use only its loopback addresses."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def patience() -> int:
    """Read GROUP_TIMEOUT: the seconds for which joining and each exchange wait for other processes."""
    return environment.integer("GROUP_TIMEOUT", default=600, at_least=1, at_most=86_400)


def await_master(meeting: Meeting, *, connect: bool) -> None:
    """Wait until the master's name resolves and, with `connect`, its port accepts connections.

    Raises GroupError after the meeting's time-out.
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
    """Return the error for a master that did not answer in time. It quotes `error`, the last failure."""
    reason = str(error) or "no answer"
    return GroupError(f"could not reach the master at {meeting} within {meeting.timeout} s: {reason}")

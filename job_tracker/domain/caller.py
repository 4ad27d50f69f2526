"""Callers: their names, how they are identified, and their roles."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

DEFAULT_PROJECT = "default"


class Means(StrEnum):
    """How a caller is identified."""

    OPEN = "open"
    """No identification: the service asks for no proof.

    Everyone who can reach it is the same caller, at many addresses.
    """


class Role(StrEnum):
    """What a caller may do in a project."""

    OPERATOR = "operator"
    """The caller may do everything, in all projects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of an operation. The first argument of every operation."""

    name: str
    means: Means
    roles: Mapping[str, Role] = field(default_factory=dict)
    """By project."""
    default_project: str = DEFAULT_PROJECT
    """The project of requests that do not name one."""
    address: str = ""
    """The caller's host, for example ipv4:192.0.2.1; empty for the service itself."""

    @property
    def key(self) -> str:
        """The key of limits that callers share. Callers without names have one key per host.

        So all programs on one machine count as one caller, and so do all clients behind one proxy.
        """
        return self.address


BUILT_IN = Caller(name="operator", means=Means.OPEN, roles={DEFAULT_PROJECT: Role.OPERATOR})
"""The only caller so far. Without an address it is the service itself."""

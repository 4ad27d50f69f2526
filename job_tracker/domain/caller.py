"""Who asks for an operation, how we know, and what they may do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

DEFAULT_PROJECT = "default"


class Means(StrEnum):
    """How a caller is known."""

    OPEN = "open"
    """By nothing: the service asks for no proof, so all that reach it are one caller, at many addresses."""


class Role(StrEnum):
    """What a caller may do in a project."""

    OPERATOR = "operator"
    """Everything, in all projects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks for an operation. The first argument of every operation."""

    name: str
    means: Means
    roles: Mapping[str, Role] = field(default_factory=dict)
    """By project."""
    default_project: str = DEFAULT_PROJECT
    """The project that is meant where none is named."""
    address: str = ""
    """The host that calls, as in ipv4:192.0.2.1; empty for the service itself."""

    @property
    def key(self) -> str:
        """What shares and bounds count by. Callers without names have one per host, so all programs of one
        machine share, as do all behind one proxy.
        """
        return self.address


BUILT_IN = Caller(name="operator", means=Means.OPEN, roles={DEFAULT_PROJECT: Role.OPERATOR})
"""The only caller there is so far; without an address, the service itself."""

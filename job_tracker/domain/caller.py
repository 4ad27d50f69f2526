"""Callers: their names, how they are identified, and their roles."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Final

from job_tracker.common.addresses import network_of
from job_tracker.domain.naming import DEFAULT_PROJECT

ALL_PROJECTS: Final = "*"
"""Stands for every project in the roles of a caller. It is not the name of a project."""


class Means(StrEnum):
    """The means by which a caller is identified."""

    OPEN = "open"
    """No identification: the service requires neither a token nor a certificate.

    All who can reach the service count as the same caller, at different addresses.
    """
    TOKEN = "token"  # noqa: S105
    """A token of this service."""
    CERTIFICATE = "certificate"
    """A client certificate, which the service has verified. Its SPIFFE id or subject is the caller's name."""
    REPORT = "report"
    """A report token, which the operation itself checks. A caller with a report token has no role."""


class Role(IntEnum):
    """A set of rights in a project. Each role includes the roles before it; see rights.py."""

    VIEWER = 1
    """The caller may read the jobs of the project."""
    SUBMITTER = 2
    """The caller may submit jobs, too, and may cancel, annotate and delete its own jobs."""
    ADMIN = 3
    """The caller may cancel, annotate and delete the jobs of others, too.

    It also manages the tokens, members, algorithms and datasets of the project, and reads the project's audit
    events.
    """
    OPERATOR = 4
    """The caller may do everything, in all projects."""

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of an operation. It is the first argument of every operation."""

    name: str
    """Unique among all callers of a service. It is stored with the jobs that the caller submits."""
    means: Means
    roles: Mapping[str, Role] = field(default_factory=dict)
    """The caller's roles by project. The role under ALL_PROJECTS counts in every project."""
    default_project: str = DEFAULT_PROJECT
    """The project of requests that do not name one."""
    credential: str = ""
    """The visible id of the caller's token; empty without one."""
    address: str = ""
    """The caller's host, for example ipv4:192.0.2.1; empty for the service itself."""

    @property
    def key(self) -> str:
        """The key under which limits count the caller. Callers without identification have one key per host,
        or per IPv6 network.

        So without identification, all programs on one machine, or behind one proxy, count as one caller.
        """
        return network_of(self.address) if self.means is Means.OPEN else f"{self.means}:{self.name}"

    @property
    def is_everywhere(self) -> bool:
        """Return whether the caller has a role in every project."""
        return ALL_PROJECTS in self.roles

    def role_in(self, project: str) -> Role | None:
        """Return the caller's role in the project; None if it has none."""
        own, general = self.roles.get(project), self.roles.get(ALL_PROJECTS)
        if own is None or general is None:
            return own or general
        return max(own, general)

    def using(self, project: str) -> "Caller":
        """Return the caller with another default project. The roles stay the same."""
        return replace(self, default_project=project)


BUILT_IN = Caller(name="operator", means=Means.OPEN, roles={ALL_PROJECTS: Role.OPERATOR})
"""The caller of every call if the service requires neither a token nor a certificate.

If its address is empty, the caller is the service itself.
"""

"""Callers with other addresses, names and roles."""

from dataclasses import replace

from job_tracker.domain.caller import ALL_PROJECTS, BUILT_IN, Caller, Means, Role
from job_tracker.domain.errors import NotAllowed
from training_service.auth.authenticator import Pairs, Peer
from training_service.auth.certificates import Identity


def caller_at(address: str) -> Caller:
    """Return the built-in caller with this address."""
    return replace(BUILT_IN, address=address)


def caller_with(role: Role | None, project: str = "vision", *, name: str = "ada") -> Caller:
    """Return a caller that has the role in its default project; without a role if it is None. An operator has
    its role in all projects.
    """
    where = ALL_PROJECTS if role is Role.OPERATOR else project
    roles = {} if role is None else {where: role}
    return Caller(name=name, means=Means.OPEN, roles=roles, default_project=project)


class Open:
    """An authenticator for which every caller is the operator."""

    async def authenticate(
        self,
        metadata: Pairs,
        address: str,
        peer: Peer,
    ) -> tuple[Caller, Identity | None]:
        """See Authenticator."""
        return caller_at(address), None

    def refused(self, error: NotAllowed, address: str) -> None:
        """See Authenticator."""

"""Finds the caller behind a request to the dashboard."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starlette.requests import HTTPConnection

from job_tracker.access import tokens
from job_tracker.access.callers import Callers
from job_tracker.domain.caller import ALL_PROJECTS, Caller, Means, Role
from job_tracker.domain.errors import NotAllowed
from training_service.api.peers import peer_host
from training_service.auth.authenticator import AUTHORIZATION, Authenticator
from training_service.web.sessions import Session, Sessions

_OPERATOR: Final = {ALL_PROJECTS: Role.OPERATOR}


class LoginNeeded(NotAllowed):
    """The caller has to log in first, or again."""


class _NoCertificate:
    """A browser as a peer for the authenticator. It has no client certificate."""

    def auth_context(self) -> Mapping[str, list[bytes]]:
        """Return an empty mapping; see authenticator.Peer."""
        return {}


@dataclass(frozen=True, slots=True)
class Visitors:
    """Identifies callers by their sessions, with the authenticator of the API."""

    authenticator: Authenticator
    callers: Callers
    sessions: Sessions
    is_open: bool
    """Whether callers need no token."""
    cookie: str
    """The name of the cookie."""
    is_encrypted: bool = False

    def session_of(self, connection: HTTPConnection) -> Session | None:
        """Return the session of the request's cookie; None without a valid cookie."""
        cookie = connection.cookies.get(self.cookie)
        return self.sessions.read(cookie) if cookie else None

    async def caller_of(self, connection: HTTPConnection, session: Session | None) -> Caller:
        """Return the caller of the session, with its present roles.

        Without a login, the caller is the same as for an API call without a token. Raises LoginNeeded if the
        caller has not logged in and needs a token, or if the session's token is no longer valid. Raises
        StoreUnavailable if the store does not answer.
        """
        address = address_of(connection)
        if session is None or not session.credential:
            if not self.is_open:
                raise LoginNeeded("log in to see this page")
            caller, _ = await self.authenticator.authenticate((), address, _NoCertificate())
            return caller
        return await self.still(_remembered(session, address))

    async def caller_with_token(self, connection: HTTPConnection) -> Caller:
        """Return the caller whose token is in the request's headers.

        The headers are read in the same way as the metadata of an API call. Raises the errors of
        `Authenticator.authenticate`.
        """
        proof = tuple((AUTHORIZATION, value) for value in connection.headers.getlist(AUTHORIZATION))
        caller, _ = await self.authenticator.authenticate(proof, address_of(connection), _NoCertificate())
        return caller

    async def still(self, caller: Caller) -> Caller:
        """Return the caller with its present roles.

        Raises LoginNeeded if its token is no longer valid, and StoreUnavailable if the store does not answer.
        """
        try:
            return await self.callers.current(caller)
        except NotAllowed as error:
            raise LoginNeeded(str(error), caller=error.caller, credential=error.credential) from None

    async def log_in(self, connection: HTTPConnection, token: str) -> tuple[Caller, Session]:
        """Return the caller with this token, and its new session.

        Raises the errors of `Authenticator.authenticate`.
        """
        proof = ((AUTHORIZATION, f"Bearer {token}"),)
        caller, _ = await self.authenticator.authenticate(proof, address_of(connection), _NoCertificate())
        return caller, self.sessions.begin(caller.credential, caller.default_project)


def address_of(connection: HTTPConnection) -> str:
    """Return the browser's host in the form in which the API names callers' hosts."""
    client = connection.client
    if client is None:
        return ""
    host = f"[{client.host}]" if ":" in client.host else client.host
    return peer_host(f"{'ipv6' if ':' in host else 'ipv4'}:{host}:{client.port}")


def _remembered(session: Session, address: str) -> Caller:
    """Return the caller of a session, without name and roles, which `Visitors.still` adds.

    Only the operator of this machine has them already.
    """
    is_operator = session.credential == tokens.OPERATOR_ID
    return Caller(
        name="operator" if is_operator else "",
        means=Means.TOKEN,
        roles=_OPERATOR if is_operator else {},
        default_project=session.project,
        credential=session.credential,
        address=address,
    )

"""Identifies the caller of each call, before its message is parsed."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Final, Protocol

from job_tracker.access.callers import Callers
from job_tracker.common.clock import utc_now
from job_tracker.common.log_context import request_id
from job_tracker.domain.audit import AUTHENTICATE, LONGEST_DETAIL, AuditEvent, EventObserver, Outcome
from job_tracker.domain.caller import BUILT_IN, Caller
from job_tracker.domain.errors import NotAllowed
from training_service.auth.certificates import AuthContext, Identity

AUTHORIZATION: Final = "authorization"
_SCHEME: Final = "bearer "
_ADDRESSES_REMEMBERED = 1024

Identify = Callable[[AuthContext], Identity | None]
"""Finds the identity in a client certificate; see auth.certificates.identity_of."""
Pairs = Iterable[tuple[str, str | bytes]]
"""The metadata of a call."""


class Peer(Protocol):
    """The part of gRPC's context that has the facts about the peer of the connection."""

    def auth_context(self) -> AuthContext:
        """Return the facts about the peer that gRPC learned in the TLS handshake."""
        ...


class Authenticator(Protocol):
    """Identifies callers."""

    async def authenticate(self, metadata: Pairs, address: str, peer: Peer) -> tuple[Caller, Identity | None]:
        """Return the caller, and the identity of its client certificate.

        The identity is None if the caller was identified without a certificate. Raises NotAllowed if the
        caller cannot be identified; the message quotes no unverified values from the caller. Raises
        RateExceeded if invalid tokens come too often from `address`, and StoreUnavailable if the store is
        needed and does not answer.
        """
        ...

    def refused(self, error: NotAllowed, address: str) -> None:
        """Record that an open call from this address was ended: its caller's certificate has expired."""


class Proofs:
    """Identifies callers by a token, or by a client certificate if no token was sent."""

    def __init__(self, callers: Callers, identify: Identify | None, *, is_open: bool) -> None:
        """`identify` is None if client certificates are not accepted.

        With `is_open`, callers that send neither a token nor a certificate are operators.
        """
        self._callers = callers
        self._identify = identify
        self._is_open = is_open

    async def authenticate(self, metadata: Pairs, address: str, peer: Peer) -> tuple[Caller, Identity | None]:
        """See Authenticator. A wrong token is refused, even if the service is open."""
        token = bearer_token(metadata)
        if token is not None:
            return await self._callers.by_token(token, address), None
        if self._identify is not None and (identity := self._identify(peer.auth_context())):
            identity.seconds_left()
            return await self._callers.by_certificate(identity.name, address), identity
        if self._is_open:
            return _open_caller(address), None
        raise NotAllowed(
            "this service needs to know who is calling; send 'authorization: Bearer TOKEN' (with trainctl: "
            "`trainctl login`)"
        )

    def refused(self, error: NotAllowed, address: str) -> None:
        """Do nothing; see Authenticator."""


def bearer_token(metadata: Pairs) -> str | None:
    """Return the token in the metadata `authorization: Bearer TOKEN`; None without this metadata.

    Raises NotAllowed if the metadata is given several times or has another form.
    """
    values = [value for key, value in metadata if key == AUTHORIZATION]
    if not values:
        return None
    if len(values) > 1:
        raise NotAllowed(f"the metadata {AUTHORIZATION} is given {len(values)} times; send it once")
    [value] = values
    if not isinstance(value, str) or value[: len(_SCHEME)].lower() != _SCHEME:
        raise NotAllowed(
            f"the metadata {AUTHORIZATION} does not have the form 'Bearer TOKEN'; send it in this form"
        )
    return value[len(_SCHEME) :].strip()


class NotingRefusals:
    """Returns the callers that another authenticator identifies, and records an event for each refusal."""

    def __init__(
        self, proofs: Authenticator, note: EventObserver, clock: Callable[[], datetime] = utc_now
    ) -> None:
        self._proofs = proofs
        self._note = note
        self._clock = clock

    async def authenticate(self, metadata: Pairs, address: str, peer: Peer) -> tuple[Caller, Identity | None]:
        """See Authenticator."""
        try:
            return await self._proofs.authenticate(metadata, address, peer)
        except NotAllowed as error:
            self.refused(error, address)
            raise

    def refused(self, error: NotAllowed, address: str) -> None:
        """See Authenticator."""
        self._note(refusal_of(error, address, self._clock()))


def refusal_of(error: NotAllowed, address: str, at: datetime) -> AuditEvent:
    """Return the audit event for a call from this address. The caller could not be identified (`error`)."""
    return AuditEvent(
        at=at,
        action=AUTHENTICATE,
        outcome=Outcome.DENIED,
        caller=error.caller,
        credential=error.credential,
        address=address,
        detail=str(error).partition(";")[0][:LONGEST_DETAIL],
        request_id=request_id.get(),
    )


@lru_cache(_ADDRESSES_REMEMBERED)
def _open_caller(address: str) -> Caller:
    return replace(BUILT_IN, address=address)

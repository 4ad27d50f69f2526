"""Finds the caller to whom a token or a client certificate belongs, with the caller's present roles."""

import asyncio
import hmac
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from job_tracker.access import tokens
from job_tracker.access.projects import Projects
from job_tracker.common.addresses import network_of
from job_tracker.common.rates import Rate
from job_tracker.domain.access import Token
from job_tracker.domain.caller import ALL_PROJECTS, Caller, Means, Role
from job_tracker.domain.errors import NotAllowed, RateExceeded, StoreUnavailable
from job_tracker.domain.naming import DEFAULT_PROJECT
from job_tracker.store.access import AccessStore

log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 0.5
"""The seconds between two checks for changes by other replicas."""
_STALE_SECONDS: Final = 1.0
"""If the last check for changes is older than this, a remembered token is accepted only after a new check."""
_TOUCH_SECONDS: Final = 60.0
_REMEMBERED = 16_384
_ADDRESSES_OF_ONE = 64

OnChange = Callable[[], Awaitable[None]]


@dataclass(slots=True)
class _Known:
    """A valid token, the Unix time at which it ends, and the callers that use it, by address."""

    token: Token
    ends_at: float
    callers: dict[str, Caller] = field(default_factory=dict)


class Callers:
    """Identifies callers. A revoked token is accepted for at most another second.

    If the store does not answer, tokens cannot be checked: calls then raise StoreUnavailable.

    Invalid tokens are counted by address. If an address exceeds the allowed rate, further tokens from it are
    refused without a check, except for tokens that this process has accepted before. So a stranger who shares
    a proxy with other callers can lock out only tokens that this process has not accepted yet, and only at
    the address of the proxy.
    """

    def __init__(
        self,
        store: AccessStore,
        projects: Projects,
        *,
        operators: frozenset[str] = frozenset(),
        failures: Rate | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`operators` has the names of operators. A caller is an operator if `operators` has the name in the
        caller's client certificate, or the name of the caller's token, if the token has no project and no
        role.

        `failures` limits the invalid tokens of each address, or of each IPv6 network; None: no limit. `clock`
        gives Unix time.
        """
        self._store = store
        self._projects = projects
        self._operators = operators
        self._failures = failures
        self._proven: dict[bytes, None] = {}  # the digests of tokens that have been valid, the oldest first
        self._operator_token: bytes | None = None
        self._clock = clock
        self._monotonic = monotonic
        self._known: dict[bytes, _Known] = {}
        self._by_certificate: dict[tuple[str, str], Caller] = {}
        self._version: int | None = None
        self._generation = 0
        self._checked_at = -math.inf
        self._checking = asyncio.Lock()
        self._ends: set[float] = set()  # the end times of used tokens
        self._announced = 0
        self._on_change: OnChange = _nothing
        self._used: dict[str, float] = {}
        self._touched_at = monotonic()

    async def by_token(self, text: str, address: str) -> Caller:
        """Return the caller with this token.

        Raises NotAllowed if the token is not valid, RateExceeded if the address has sent too many invalid
        tokens, and StoreUnavailable.
        """
        await self._look_if_stale()
        digest = tokens.digest_of(text)
        known = self._known.get(digest)
        if known is None:
            if self._is_operator(digest):
                return _operator_at(address)
            with self._counting_failures(digest, address):
                known = await self._find(tokens.id_of(text), digest)
        now = self._clock()
        if now >= known.ends_at:
            raise _ended(known.token)
        self._used[known.token.id] = now
        caller = known.callers.get(address)
        if caller is None:
            if len(known.callers) >= _ADDRESSES_OF_ONE:
                known.callers.clear()
            caller = known.callers[address] = self._caller_with(known.token, address)
        return caller

    async def by_certificate(self, name: str, address: str) -> Caller:
        """Return the caller with this name in its client certificate. Raises StoreUnavailable."""
        await self._look_if_stale()
        known = self._by_certificate.get((name, address))
        if known is None:
            if len(self._by_certificate) >= _REMEMBERED:
                self._by_certificate.clear()
            roles = self._roles_of(name)
            known = self._by_certificate[name, address] = Caller(
                name=name,
                means=Means.CERTIFICATE,
                roles=roles,
                default_project=_default_of(roles),
                address=address,
            )
        return known

    def remembering(self) -> Callable[[Caller], Awaitable[Caller]]:
        """Return a variant of `current` that looks up each caller only once."""
        found: dict[tuple[str, str], Caller | NotAllowed] = {}

        async def current(caller: Caller) -> Caller:
            key = (caller.name, caller.credential)
            if key not in found:
                try:
                    found[key] = await self.current(caller)
                except NotAllowed as error:
                    found[key] = error
            outcome = found[key]
            if isinstance(outcome, NotAllowed):
                raise outcome
            return outcome

        return current

    async def current(self, caller: Caller) -> Caller:
        """Return the caller with its present roles.

        Raises NotAllowed if its token is no longer valid. Raises StoreUnavailable.
        """
        if caller.means is Means.CERTIFICATE:
            return await self.by_certificate(caller.name, caller.address)
        if caller.means is not Means.TOKEN or caller.credential == tokens.OPERATOR_ID:
            return caller
        await self._look_if_stale()
        token = await self._store.token(caller.credential)
        if token is None:
            raise NotAllowed(tokens.REFUSED)
        if (end := token.ends_at) is not None and self._clock() >= end.timestamp():
            raise _ended(token)
        return replace(self._caller_with(token, caller.address), default_project=caller.default_project)

    def accept_operator(self, digest: bytes) -> None:
        """Accept the operator's token with this digest. The token is in a file, not in a store."""
        self._operator_token = digest

    def on_change(self, call: OnChange) -> None:
        """Set the function that `announce` calls."""
        self._on_change = call

    async def refresh(self) -> None:
        """Look for changes of tokens and roles. If there are any, forget the remembered callers.

        Raises StoreUnavailable.
        """
        async with self._checking:
            await self._look()

    async def announce(self) -> None:
        """Look for changes of tokens and roles.

        If there are any, or a used token has expired since the last call, call the function that was passed
        to `on_change`. Raises StoreUnavailable.
        """
        await self.refresh()
        now, generation = self._clock(), self._generation
        left = {end for end in self._ends if end > now}
        if generation == self._announced and len(left) == len(self._ends):
            return
        await self._on_change()
        self._announced = generation
        self._ends -= {end for end in self._ends if end <= now}

    async def follow(self) -> None:
        """Until cancelled, announce changes of tokens and roles that any replica has made, and store the time
        of each token's last use.
        """
        problem = ""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.announce()
                if self._monotonic() - self._touched_at >= _TOUCH_SECONDS:
                    await self.flush()
                problem = ""
            except StoreUnavailable as error:
                if str(error) != problem:
                    log.warning("tokens and roles cannot be checked: %s", error)
                problem = str(error)
            # Continue after any error: otherwise, expired tokens and changes by other replicas would no
            # longer end streams.
            except Exception:
                log.exception("changes of tokens and roles cannot be followed")

    async def flush(self) -> None:
        """Write the time of each token's last use to the store.

        Raises StoreUnavailable; the times are then kept for the next try.
        """
        self._touched_at = self._monotonic()
        used, self._used = self._used, {}
        if not used:
            return
        try:
            await self._store.touch_tokens({each: _moment(at) for each, at in used.items()})
        except BaseException:
            self._used = used | self._used  # for the next try
            raise

    async def close(self) -> None:
        """Write the time of each token's last use to the store, if the store answers."""
        with suppress(StoreUnavailable):
            await self.flush()

    async def _look_if_stale(self) -> None:
        if self._is_stale():
            async with self._checking:
                if self._is_stale():  # otherwise another call has checked the store in the meantime
                    await self._look()

    def _is_stale(self) -> bool:
        return self._monotonic() - self._checked_at > _STALE_SECONDS

    async def _look(self) -> None:
        begun = self._monotonic()
        version = await self._store.access_version()
        if version != self._version or self._projects.have_changed:
            await self._projects.load()
            self._version = version
            self._generation += 1
            self._known.clear()
            self._by_certificate.clear()
        self._checked_at = begun

    def _is_operator(self, digest: bytes) -> bool:
        return self._operator_token is not None and hmac.compare_digest(digest, self._operator_token)

    @contextmanager
    def _counting_failures(self, digest: bytes, address: str) -> Iterator[None]:
        """Count a failure of the address if the block raises NotAllowed.

        Raises RateExceeded before the block if the address has too many failures. For a token that this
        process has accepted before, there is neither a count nor a limit.
        """
        failures = self._failures if digest not in self._proven else None
        network = network_of(address)
        if failures is not None and (wait := failures.take(network)):
            raise RateExceeded(
                f"too many calls with invalid tokens from this address: {failures.per_second:g} a second are "
                f"checked, and {failures.burst} after a pause",
                setting="limits.failed_token_rate",
                wait=wait,
            )
        try:
            yield
        except NotAllowed:
            raise
        except BaseException:  # it is unknown whether the token is valid
            if failures is not None:
                failures.give_back(network)
            raise
        if failures is not None:
            failures.give_back(network)
        self._proven[digest] = None
        if len(self._proven) > _REMEMBERED:
            del self._proven[next(iter(self._proven))]

    async def _find(self, token_id: str, digest: bytes) -> _Known:
        generation = self._generation
        token = await self._store.token(token_id)
        if token is None or not hmac.compare_digest(token.digest, digest):
            raise NotAllowed(tokens.REFUSED)
        end = token.ends_at
        known = _Known(token, end.timestamp() if end else math.inf)
        if known.ends_at <= self._clock():
            raise _ended(token)
        if generation == self._generation:  # otherwise the token may have been revoked in the meantime
            if len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[digest] = known
            if end:
                self._ends.add(known.ends_at)
        return known

    def _caller_with(self, token: Token, address: str) -> Caller:
        roles: Mapping[str, Role]
        if token.project:
            exists = self._projects.get(token.project) is not None
            roles = {token.project: token.role} if exists and token.role else {}
            default = token.project
        else:
            roles = _OPERATOR if token.role is Role.OPERATOR else self._roles_of(token.name)
            default = _default_of(roles)
        return Caller(
            name=token.caller_name,
            means=Means.TOKEN,
            roles=roles,
            default_project=default,
            credential=token.id,
            address=address,
        )

    def _roles_of(self, name: str) -> Mapping[str, Role]:
        return _OPERATOR if name in self._operators else self._projects.roles_of(name)


_OPERATOR: Final = {ALL_PROJECTS: Role.OPERATOR}


def _operator_at(address: str) -> Caller:
    """Return the caller at this address that sent the operator's token, which is in a file of the service."""
    return Caller(
        name="operator",
        means=Means.TOKEN,
        roles=_OPERATOR,
        credential=tokens.OPERATOR_ID,
        address=address,
    )


async def _nothing() -> None:
    """Do nothing. The default of `on_change`."""


def _default_of(roles: Mapping[str, Role]) -> str:
    """Return the default project of a caller with these roles, for requests that name no project.

    This is the project `default` if the caller has a role in that project or in all projects, or has no role
    at all. Otherwise, it is the first of the caller's projects, sorted by name.
    """
    if not roles or DEFAULT_PROJECT in roles or ALL_PROJECTS in roles:
        return DEFAULT_PROJECT
    return min(roles)


def _ended(token: Token) -> NotAllowed:
    """Return the error for a token that is no longer valid.

    Only a caller with the token's secret gets this error.
    """
    if token.revoked_at is not None and token.revoked_at == token.ends_at:
        ended = f"was revoked at {_written(token.revoked_at)}"
    else:
        assert token.expires_at is not None
        ended = f"expired at {_written(token.expires_at)}"
    message = f"the token {token.id} {ended}; ask for a new one"
    return NotAllowed(message, caller=token.caller_name, credential=token.id)


def _written(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)

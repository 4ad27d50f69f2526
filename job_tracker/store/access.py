"""The protocol for tokens, and for the projects that callers have declared through the API."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

from job_tracker.domain.access import Project, Token, TokenLimits
from job_tracker.domain.audit import AuditEvent

UNLIMITED: Final = TokenLimits()
ENDED_TOKENS_PURGED: Final = 100
"""The largest number of tokens that one `add_token` deletes."""


class AccessStore(Protocol):
    """Stores tokens and projects.

    Every change except `touch_tokens` takes an audit event, which is stored in the same transaction if
    something changes. The cost of finding a token does not grow with the number of tokens. All projects are
    read at once, since services keep them in memory.
    """

    async def access_version(self) -> int:
        """Return a number that differs after each change of tokens, projects or report keys.

        `touch_tokens` does not count as a change.
        """
        ...

    async def add_token(
        self,
        token: Token,
        limits: TokenLimits = UNLIMITED,
        *,
        purge_before: datetime,
        event: AuditEvent | None = None,
    ) -> bool:
        """Store a new token. Return False, and change nothing, if its id is in use.

        At most ENDED_TOKENS_PURGED tokens that ended before `purge_before` are deleted, too. If one of the
        `limits` (on all tokens, or on those of the project) is already reached, one of the tokens that count
        towards this limit is deleted to make room: the one that ended first. If none of them had ended when
        the new token was created, this raises TooManyTokens, and changes nothing.
        """
        ...

    async def token(self, token_id: str) -> Token | None:
        """Return the token with this id, even if it has ended; None if there is none."""
        ...

    async def list_tokens(self, project: str | None, *, limit: int, after: str = "") -> Sequence[Token]:
        """Return at most `limit` tokens of the project with ids above `after`, in the order of ids.

        If `project` is None, all tokens are listed, even those without a project.
        """
        ...

    async def revoke_token(
        self, token_id: str, at: datetime, *, event: AuditEvent | None = None
    ) -> Token | None:
        """Revoke a token, unless it is revoked already, and return it; None if there is no such token."""
        ...

    async def touch_tokens(self, used: Mapping[str, datetime]) -> None:
        """Store the times at which tokens were last used, by id. Unknown ids are ignored."""
        ...

    async def projects(self) -> Sequence[Project]:
        """Return all stored projects, sorted by name."""
        ...

    async def put_project(self, project: Project, *, event: AuditEvent | None = None) -> bool:
        """Store the next version of a project, if `project.version` is the stored version (0: not stored).

        If another version is stored, return False and change nothing.
        """
        ...

    async def delete_project(self, name: str, at: datetime, *, event: AuditEvent | None = None) -> int | None:
        """Delete a project and its declarations, and revoke its tokens, unless it has unfinished jobs.

        Return the number of unfinished jobs; if it is not 0, nothing was changed. Return None if the project
        is not stored.
        """
        ...

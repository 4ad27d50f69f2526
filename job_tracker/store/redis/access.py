"""Tokens and projects in Redis."""

from collections.abc import Awaitable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from job_tracker.domain.access import Project, Token, TokenLimits
from job_tracker.domain.audit import AuditEvent
from job_tracker.domain.caller import Role
from job_tracker.domain.errors import TooManyTokens
from job_tracker.domain.job import JobState
from job_tracker.store import encoding
from job_tracker.store.access import ENDED_TOKENS_PURGED, UNLIMITED
from job_tracker.store.redis import scripts
from job_tracker.store.redis.audit import argument_of
from job_tracker.store.redis.scripts import Script

_TOUCHED_AT_ONCE = 500
_NOT_ENDED = [state.value for state in JobState if not state.is_terminal]


class Run(Protocol):
    """Runs a script, and returns its answer."""

    def __call__(self, script: Script, *arguments: str | int) -> Awaitable[list[Any]]: ...


class RedisAccess:
    """The part of a store that keeps tokens and projects; see AccessStore."""

    def __init__(self, run: Run) -> None:
        self.__run = run

    async def access_version(self) -> int:
        _, version = await self.__run(scripts.ACCESS_VERSION)
        return int(version)

    async def add_token(
        self,
        token: Token,
        limits: TokenLimits = UNLIMITED,
        *,
        purge_before: datetime,
        event: AuditEvent | None = None,
    ) -> bool:
        outcome, *rest = await self.__run(
            *(scripts.TOKEN_ADD, argument_of(event), token.id, token.project, _text(token.ends_at)),
            *(_text(purge_before), ENDED_TOKENS_PURGED, _text(token.created_at)),
            *(limits.in_all or "", limits.of_project or ""),
            *_fields_of(token),
        )
        if outcome == b"full":
            raise TooManyTokens(int(rest[0]), rest[1].decode())
        return bool(outcome == b"done")

    async def token(self, token_id: str) -> Token | None:
        _, pairs = await self.__run(scripts.TOKEN_GET, token_id)
        return _token_of(pairs)

    async def list_tokens(self, project: str | None, *, limit: int, after: str = "") -> Sequence[Token]:
        above = f"({after}" if after else "-"
        _, found = await self.__run(scripts.TOKEN_LIST, project or "", limit, above)
        return [token for pairs in found if (token := _token_of(pairs))]

    async def revoke_token(
        self, token_id: str, at: datetime, *, event: AuditEvent | None = None
    ) -> Token | None:
        _, pairs = await self.__run(scripts.TOKEN_REVOKE, argument_of(event), token_id, _text(at))
        return _token_of(pairs)

    async def touch_tokens(self, used: Mapping[str, datetime]) -> None:
        pairs = [(token_id, _text(at)) for token_id, at in used.items()]
        for start in range(0, len(pairs), _TOUCHED_AT_ONCE):
            part = pairs[start : start + _TOUCHED_AT_ONCE]
            await self.__run(scripts.TOKEN_TOUCH, *(value for pair in part for value in pair))

    async def projects(self) -> Sequence[Project]:
        _, pairs = await self.__run(scripts.PROJECTS)
        return sorted(
            (_project_of(*each) for each in zip(pairs[::2], pairs[1::2], strict=True)),
            key=lambda project: project.name,
        )

    async def put_project(self, project: Project, *, event: AuditEvent | None = None) -> bool:
        members = encoding.text_of(encoding.MEMBERS, project.members)
        limits = encoding.text_of(encoding.LIMITS, project.limits)
        [outcome] = await self.__run(
            scripts.PROJECT_PUT, argument_of(event), project.name, project.version, members, limits
        )
        return bool(outcome == b"done")

    async def delete_project(self, name: str, at: datetime, *, event: AuditEvent | None = None) -> int | None:
        outcome, *rest = await self.__run(
            scripts.PROJECT_DELETE, argument_of(event), name, _text(at), *_NOT_ENDED
        )
        return None if outcome == b"missing" else int(rest[0])


def _fields_of(token: Token) -> list[str | int]:
    """Return the fields of the token that have a value, as alternating names and values."""
    values = {
        "id": token.id,
        "digest": token.digest.hex(),
        "name": token.name,
        "project": token.project,
        "role": token.role.value if token.role is not None else "",
        "created_at": _text(token.created_at),
        "created_by": token.created_by,
        "expires_at": _text(token.expires_at),
        "revoked_at": _text(token.revoked_at),
        "used_at": _text(token.used_at),
    }
    return [part for name, value in values.items() if value != "" for part in (name, value)]


def _token_of(pairs: Sequence[bytes]) -> Token | None:
    if not pairs:
        return None
    values = {name.decode(): value.decode() for name, value in zip(pairs[::2], pairs[1::2], strict=True)}
    return Token(
        id=values["id"],
        digest=bytes.fromhex(values["digest"]),
        name=values["name"],
        project=values.get("project", ""),
        role=Role(int(values["role"])) if "role" in values else None,
        created_at=_known_moment(values["created_at"]),
        created_by=values.get("created_by", ""),
        expires_at=_moment(values.get("expires_at")),
        revoked_at=_moment(values.get("revoked_at")),
        used_at=_moment(values.get("used_at")),
    )


def _project_of(name: bytes, content: bytes) -> Project:
    version, members, limits = content.split(b"\n")
    return Project(
        name=name.decode(),
        members=encoding.MEMBERS.validate_json(members),
        limits=encoding.LIMITS.validate_json(limits),
        version=int(version),
    )


def _text(moment: datetime | None) -> str:
    return repr(moment.timestamp()) if moment else ""


def _moment(text: str | None) -> datetime | None:
    return _known_moment(text) if text else None


def _known_moment(text: str) -> datetime:
    return datetime.fromtimestamp(float(text), UTC)

"""Tokens and projects, which decide the roles of callers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from job_tracker.domain.caller import Role
from job_tracker.domain.policies import ProjectLimits

TOKEN_NAME_RULE: Final = (
    "use 1 to 64 letters, digits and ._@+-; begin and end with a letter or digit; "  # noqa: S105
    "`operator` and `file` are taken"
)
FILE: Final = "file"
"""The name of the caller in events about changes in files of the configuration."""
_TOKEN_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._@+-]{0,62}[A-Za-z0-9])?", re.ASCII)
MOST_MEMBERS: Final = 1000
"""The largest number of members of a project."""
LONGEST_MEMBER: Final = 512


def is_token_name(text: str) -> bool:
    """Return whether a token can have this name, see TOKEN_NAME_RULE.

    A name that follows the rule is never the name of a caller with a client certificate or with a token of a
    project: the names of these callers contain other characters, such as a slash.
    """
    return text not in ("operator", FILE) and _TOKEN_NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token without its text: the service stores only a digest of the text."""

    id: str
    """The visible part of the text: 8 lower-case letters and digits."""
    digest: bytes = field(repr=False)
    """The SHA-256 of the text."""
    name: str
    """The name of the token's owner, without the project. Several tokens may have the same name."""
    project: str = ""
    """The only project in which the token is valid. Empty: the token belongs to no project."""
    role: Role | None = None
    """The role in `project`.

    A token that belongs to no project has the role OPERATOR, or None. With None, its caller has the roles of
    the member `name`.
    """
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    """None: never."""
    revoked_at: datetime | None = None
    used_at: datetime | None = None
    """The time of the last use, which is written at most once a minute; None: not used yet."""

    @property
    def caller_name(self) -> str:
        """The name of callers with this token. For a token of a project, it is PROJECT/NAME."""
        return f"{self.project}/{self.name}" if self.project else self.name

    @property
    def ends_at(self) -> datetime | None:
        """The time from which the token is no longer valid; None: there is no such time."""
        if self.revoked_at is None or self.expires_at is None:
            return self.revoked_at or self.expires_at
        return min(self.revoked_at, self.expires_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLimits:
    """The largest numbers of stored tokens. None: no limit."""

    in_all: int | None = None
    of_project: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project with its members."""

    name: str
    members: Mapping[str, Role] = field(default_factory=dict)
    """The roles of members, by the name of the caller. A member is identified by a token that belongs to no
    project, or by a client certificate."""
    limits: ProjectLimits = field(default_factory=ProjectLimits)
    version: int = 0
    """Counts the changes of a stored project; 0: it is not stored."""

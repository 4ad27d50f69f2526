"""The API's operations on tokens, projects and audit events. They do not depend on the API's protocol."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from job_tracker.access import tokens
from job_tracker.access.callers import Callers
from job_tracker.access.projects import Projects
from job_tracker.common.clock import utc_now
from job_tracker.common.printable import quoted
from job_tracker.domain import naming
from job_tracker.domain.access import (
    LONGEST_MEMBER,
    MOST_MEMBERS,
    TOKEN_NAME_RULE,
    Project,
    Token,
    TokenLimits,
    is_token_name,
)
from job_tracker.domain.audit import AuditEvent, EventObserver, Outcome, event_of, ignore_event
from job_tracker.domain.caller import Caller, Role
from job_tracker.domain.errors import (
    Forbidden,
    InvalidField,
    LimitExceeded,
    NotPossible,
    UnknownReference,
)
from job_tracker.domain.guard import Guard
from job_tracker.domain.policies import ProjectLimits
from job_tracker.store.access import UNLIMITED, AccessStore
from job_tracker.store.audit import AuditFilter, AuditStore

LONGEST_LIFETIME: Final = timedelta(days=3650)
_KEPT_AFTER_THEIR_END = timedelta(days=30)
_TRIES = 20


class _Store(AccessStore, AuditStore, Protocol):
    """The parts of a store that the operations use."""


@dataclass(frozen=True, slots=True)
class ProjectView:
    """A project as a caller may see it. Only operators and the project's admins see the members."""

    project: Project
    role: Role
    """The caller's role in the project."""
    is_declared: bool
    """Whether a file declares the project."""


class Access:
    """Creates, lists and revokes tokens, declares projects with their members, and lists audit events.

    If the caller's role does not allow an operation (domain/rights.py), the operation raises Forbidden. The
    message does not depend on whether the project exists. Two operations never raise Forbidden:
    `list_projects` and `revoke_token`. A change takes effect in this replica when the operation returns, and
    in other replicas within a second.
    """

    def __init__(
        self,
        store: _Store,
        projects: Projects,
        callers: Callers,
        clock: Callable[[], datetime] = utc_now,
        limits: TokenLimits = UNLIMITED,
        note: EventObserver = ignore_event,
    ) -> None:
        """`note` gets an event for each denial."""
        self._store = store
        self._projects = projects
        self._callers = callers
        self._clock = clock
        self._guard = Guard(note, clock)
        self._limits = limits

    async def create_token(
        self, caller: Caller, name: str, project: str, role: Role | None, lifetime: timedelta | None
    ) -> tuple[tokens.NewToken, Token]:
        """Create a token. Return its text, which is not stored, and the token.

        `lifetime` is the time until the token expires; None: it never expires. See Token for the other
        arguments.

        Only operators may create a token without a project. Raises InvalidField if an argument is not
        allowed, UnknownReference if the project does not exist, and TooManyTokens if there are too many.
        """
        if project:
            self._guard.check(caller, "create_token", project)
            self._existing(project)
            if role not in _GIVEN:
                raise InvalidField("role", f"{role or 'none'} is not allowed in a project; allowed: {_ROLES}")
        else:
            self._guard.check_everywhere(caller, "create_token")
            if role not in (None, Role.OPERATOR):
                raise InvalidField("project", f"it is missing; the role {role} needs a project")
        tokens.check_no_token("name", name)
        if not is_token_name(name):
            raise InvalidField("name", f"{quoted(name)} is not allowed; {TOKEN_NAME_RULE}")
        if lifetime is not None and not timedelta(0) < lifetime <= LONGEST_LIFETIME:
            raise InvalidField(
                "lifetime",
                f"{lifetime.total_seconds():g} s is not allowed; allowed: more than 0 s, up to "
                f"{LONGEST_LIFETIME.days} days",
            )
        now = self._clock()
        while True:
            made = tokens.new_token()
            token = Token(
                id=made.id,
                digest=made.digest,
                name=name,
                project=project,
                role=role,
                created_at=now,
                created_by=caller.name,
                expires_at=now + lifetime if lifetime else None,
            )
            event = self._event(
                caller,
                "create_token",
                project,
                f"token {made.id}",
                f"name {name}, role {role or 'as member'}, {_ending(token)}",
            )
            purge_before = now - _KEPT_AFTER_THEIR_END
            if await self._store.add_token(token, self._limits, purge_before=purge_before, event=event):
                return made, token

    async def list_tokens(
        self, caller: Caller, project: str, *, limit: int, after: str
    ) -> tuple[Sequence[Token], str]:
        """Return a page of tokens, and the `after` of the next page (empty if this page is the last).

        The page has at most `limit` tokens of the project, or of all projects if `project` is empty. Their
        ids are above `after`.
        """
        if project:
            self._guard.check(caller, "list_tokens", project)
        else:
            self._guard.check_everywhere(caller, "list_tokens")
        found = await self._store.list_tokens(project or None, limit=limit + 1, after=after)
        return found[:limit], found[limit - 1].id if len(found) > limit else ""

    async def revoke_token(self, caller: Caller, token_id: str) -> Token:
        """Revoke a token, and return it. The call may be repeated. Every caller may revoke its own token.

        Raises UnknownReference if the token does not exist or the caller may not revoke it. Raises
        InvalidField if `token_id` is the whole text of a token.
        """
        tokens.check_no_token("id", token_id)
        token = await self._store.token(token_id)
        if token is not None and caller.credential != token.id:
            target = f"token {token.id}"
            try:
                if token.project:
                    self._guard.check(caller, "revoke_token", token.project, target)
                else:
                    self._guard.check_everywhere(caller, "revoke_token", target)
            except Forbidden:
                token = None
        if token is not None:
            event = self._event(
                caller, "revoke_token", token.project, f"token {token.id}", f"name {token.name}"
            )
            token = await self._store.revoke_token(token_id, event.at, event=event)
        if token is None:
            raise UnknownReference("token", f"{quoted(token_id)} doesn't exist")
        await self._callers.announce()
        return token

    async def list_projects(self, caller: Caller) -> Sequence[ProjectView]:
        """Return the projects in which the caller has a role, sorted by name."""
        views = []
        for project in sorted(self._projects.all(), key=lambda each: each.name):
            role = caller.role_in(project.name)
            if role is not None:
                shown = project if role >= Role.ADMIN else replace(project, members={})
                views.append(ProjectView(shown, role, self._projects.is_declared(project.name)))
        return views

    async def set_project(self, caller: Caller, name: str, limits: ProjectLimits) -> Project:
        """Declare a project, or change its limits, and return it.

        Raises InvalidField if the name is not allowed, and NotPossible if a file declares the project or if
        other calls keep changing it.
        """
        self._guard.check_everywhere(caller, "set_project", _target_of(name))
        if not naming.is_project(name):
            raise InvalidField("name", f"{quoted(name)} is not allowed; {naming.PROJECT_RULE}")
        detail = f"max_queued {limits.max_queued or 'unlimited'}"
        event = self._event(caller, "set_project", name, _target_of(name), detail)
        return await self._change(
            name, lambda project: replace(project, limits=limits), event, may_create=True
        )

    async def delete_project(self, caller: Caller, name: str) -> None:
        """Delete a project whose jobs have all ended.

        The algorithms and datasets that were declared for the project are deleted, too, and its tokens are
        revoked. Its jobs stay. Raises UnknownReference if the project does not exist. Raises NotPossible if
        jobs of the project have not ended, if a file declares it, or if it is the project `default`.
        """
        self._guard.check_everywhere(caller, "delete_project", _target_of(name))
        if name == naming.DEFAULT_PROJECT:
            raise NotPossible(f"project {name} always exists; remove its members instead")
        self._existing(name)
        self._check_not_declared(name)
        event = self._event(caller, "delete_project", name, _target_of(name))
        left = await self._store.delete_project(name, event.at, event=event)
        if left is None:
            raise _unknown(name)
        if left:
            raise NotPossible(
                f"project {name} has jobs that have not ended ({left}); cancel them, or wait for their end"
            )
        await self._callers.announce()

    async def set_member(self, caller: Caller, project: str, member: str, role: Role) -> Project:
        """Give `member` a role in a project, and return the changed project.

        The new role replaces the member's present role, if there is one. Raises InvalidField if the role or
        the member's name is not allowed, UnknownReference if the project does not exist, and LimitExceeded if
        the project has too many members. Raises NotPossible if a file declares the project, or if other calls
        keep changing it.
        """
        self._guard.check(caller, "set_member", project)
        if role not in _GIVEN:
            raise InvalidField("role", f"{role} is not allowed in a project; allowed: {_ROLES}")
        tokens.check_no_token("member", member)
        if not 0 < len(member) <= LONGEST_MEMBER or not member.isprintable():
            raise InvalidField(
                "member", f"{quoted(member)} is not allowed; use 1 to {LONGEST_MEMBER} printable characters"
            )

        def change(before: Project) -> Project:
            members = {**before.members, member: role}
            if len(members) > MOST_MEMBERS:
                raise LimitExceeded(
                    f"project {project} has {MOST_MEMBERS} members, which is the limit",
                    limit="projects.members",
                )
            return replace(before, members=members)

        event = self._event(caller, "set_member", project, f"member {member}", f"role {role}")
        return await self._change(project, change, event)

    async def remove_member(self, caller: Caller, project: str, member: str) -> Project:
        """Remove the role of `member` in a project, and return the changed project.

        This also ends the streams that `member` has open in the project. Raises UnknownReference if the
        project does not exist, or `member` has no role in it. Raises NotPossible in the same cases as
        `set_member`.
        """
        self._guard.check(caller, "remove_member", project)
        tokens.check_no_token("member", member)

        def change(before: Project) -> Project:
            if member not in before.members:
                raise UnknownReference("member", f"{quoted(member)} has no role in project {project}")
            return replace(before, members={k: v for k, v in before.members.items() if k != member})

        event = self._event(caller, "remove_member", project, f"member {member}")
        return await self._change(project, change, event)

    async def list_events(
        self, caller: Caller, where: AuditFilter, *, limit: int, before: int | None
    ) -> tuple[Sequence[AuditEvent], int | None]:
        """Return a page of audit events, newest first, and the `before` of the next page (None if this page
        is the last).

        The page has at most `limit` events, with ids below `before`. Without a project in `where`, it has
        the events of all projects, which only operators may read.
        """
        if where.project:
            self._guard.check(caller, "list_events", where.project)
        else:
            self._guard.check_everywhere(caller, "list_events")
        found = await self._store.list_events(where, limit=limit + 1, before=before)
        return found[:limit], found[limit - 1].id if len(found) > limit else None

    def _event(self, caller: Caller, action: str, project: str, target: str, detail: str = "") -> AuditEvent:
        """Return the audit event of a change that the caller makes now."""
        return event_of(
            caller, action, Outcome.DONE, self._clock(), project=project, target=target, detail=detail
        )

    async def _change(
        self,
        name: str,
        change: Callable[[Project], Project],
        event: AuditEvent,
        *,
        may_create: bool = False,
    ) -> Project:
        for _ in range(_TRIES):
            stored = {project.name: project for project in await self._store.projects()}
            before = stored.get(name)
            self._check_not_declared(name)
            if before is None:
                if not may_create and name != naming.DEFAULT_PROJECT:
                    raise _unknown(name)
                before = Project(name=name)
            after = change(before)
            if after == before and before.version:
                return before
            if await self._store.put_project(after, event=event):
                await self._callers.announce()
                return replace(after, version=after.version + 1)
        raise NotPossible(f"other calls keep changing project {name}; try again")

    def _existing(self, name: str) -> None:
        if self._projects.get(name) is None:
            raise _unknown(name)

    def _check_not_declared(self, name: str) -> None:
        if self._projects.is_declared(name):
            raise NotPossible(f"project {name} is declared in a file of the service; change it there")


_GIVEN = (Role.VIEWER, Role.SUBMITTER, Role.ADMIN)
_ROLES = ", ".join(map(str, _GIVEN))


def _ending(token: Token) -> str:
    """Describe when a new token expires."""
    return f"expires {token.expires_at:%Y-%m-%d %H:%M} UTC" if token.expires_at else "never expires"


def _target_of(project: str) -> str:
    """Return the target of an event about `project`; empty if `project` cannot be the name of a project."""
    return f"project {project}" if naming.is_project(project) else ""


def _unknown(name: str) -> UnknownReference:
    return UnknownReference("project", f"{quoted(name)} doesn't exist")

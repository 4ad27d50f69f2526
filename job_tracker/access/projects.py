"""The projects that exist. They are declared in files or through the API, and are kept in memory."""

import logging
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Final

from job_tracker.common.clock import utc_now
from job_tracker.domain.access import FILE, Project
from job_tracker.domain.audit import LONGEST_DETAIL, AuditEvent, EventObserver, Outcome, ignore_event
from job_tracker.domain.caller import Role
from job_tracker.domain.naming import DEFAULT_PROJECT
from job_tracker.domain.policies import ProjectLimits
from job_tracker.store.access import AccessStore

log = logging.getLogger(__name__)

Declared = Callable[[], Mapping[str, Project]]
"""Returns the projects that files declare, by name. The result is the same object until a file changes."""

NONE_DECLARED: Final[Mapping[str, Project]] = {}


class Projects:
    """All projects.

    `default` always exists. A project that a file declares hides a project of the same name that was declared
    through the API.
    """

    def __init__(
        self,
        store: AccessStore,
        declared: Declared = lambda: NONE_DECLARED,
        *,
        note: EventObserver = ignore_event,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """`note` gets an event for each project that changes in a file; see `declare`."""
        self._note = note
        self._clock = clock
        self._source = ""
        self._store = store
        self._declared_now = declared
        self._declared: Mapping[str, Project] = NONE_DECLARED
        self._stored: Mapping[str, Project] = {}
        self._all: Mapping[str, Project] = {DEFAULT_PROJECT: Project(name=DEFAULT_PROJECT)}
        self._roles: Mapping[str, Mapping[str, Role]] = {}

    @property
    def stored(self) -> Collection[str]:
        """The names of the projects that were declared through the API, as of the last `load`."""
        return self._stored.keys()

    async def declare(self, declared: Declared, source: str) -> None:
        """Load all projects now. From now on, `declared` returns the projects that files declare.

        Later changes in the files become audit events. Their detail is `source`, which names the files.
        """
        self._source = ""
        self._declared_now = declared
        await self.load()
        self._source = source

    @property
    def have_changed(self) -> bool:
        """Whether a file has changed since the last `load`."""
        return self._declared_now() is not self._declared

    async def load(self) -> None:
        """Load the projects of the API from the store, and the projects of the files."""
        stored = {project.name: project for project in await self._store.projects()}
        before, self._declared, self._stored = self._declared, self._declared_now(), stored
        if self._source and before is not self._declared:
            self._note_changes(before)
        for name in sorted(stored.keys() & self._declared.keys()):
            log.error(
                "project %s is declared in a file and through the API; the file is used. To keep the "
                "project of the API, remove the project from the file. To keep that of the file, remove it "
                "from the file, run `trainctl project delete %s`, and add it to the file again",
                *(name, name),
            )
        gone = self._all.keys() - {DEFAULT_PROJECT, *stored, *self._declared}
        for name in sorted(gone):
            log.warning(
                "project %s no longer exists; its jobs continue, and only operators may see them", name
            )
        self._all = {DEFAULT_PROJECT: Project(name=DEFAULT_PROJECT), **stored, **self._declared}
        roles: dict[str, dict[str, Role]] = {}
        for project in self._all.values():
            for member, role in project.members.items():
                roles.setdefault(member, {})[project.name] = role
        self._roles = roles

    def _note_changes(self, before: Mapping[str, Project]) -> None:
        for name in sorted(before.keys() | self._declared.keys()):
            if before.get(name) == self._declared.get(name):
                continue
            self._note(
                AuditEvent(
                    at=self._clock(),
                    action="set_project" if name in self._declared else "delete_project",
                    outcome=Outcome.DONE,
                    caller=FILE,
                    means=FILE,
                    project=name,
                    target=f"project {name}",
                    detail=self._source[:LONGEST_DETAIL],
                )
            )

    def all(self) -> Collection[Project]:
        """Return all projects."""
        return self._all.values()

    def names(self) -> Collection[str]:
        """Return the names of all projects."""
        return self._all.keys()

    def get(self, name: str) -> Project | None:
        """Return the project with this name; None if it does not exist."""
        return self._all.get(name)

    def is_declared(self, name: str) -> bool:
        """Return whether a file declares the project. If so, the API cannot change it."""
        return name in self._declared

    def is_deletable(self, name: str) -> bool:
        """Return whether the API can delete the project.

        The project must be stored, and must not be `default` or declared in a file.
        """
        return name in self._stored and name not in self._declared and name != DEFAULT_PROJECT

    def roles_of(self, member: str) -> Mapping[str, Role]:
        """Return the roles of a member, by project; empty if no project has this member."""
        return self._roles.get(member, {})

    def limits_of(self, name: str) -> ProjectLimits | None:
        """Return the limits of a project; None if it does not exist."""
        project = self._all.get(name)
        return project.limits if project else None

"""The API's operations on algorithms, datasets and queues. They do not depend on the API's protocol."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Protocol

from job_tracker.admission.programs import PROGRAM
from job_tracker.catalog import Algorithm, Dataset, Entry, Origin
from job_tracker.catalog.entries import HOW_TO_ADD, dataset_entry_of, listed, listed_like
from job_tracker.common.clock import utc_now
from job_tracker.common.printable import quoted
from job_tracker.declarations.catalog import (
    DeclaredCatalog,
    FindOccupied,
    none_occupied,
    unknown_projects,
)
from job_tracker.declarations.reading import canonical, parsed
from job_tracker.domain import naming
from job_tracker.domain.access import Project
from job_tracker.domain.audit import EventObserver, Outcome, event_of, ignore_event
from job_tracker.domain.caller import ALL_PROJECTS, Caller
from job_tracker.domain.declaration import Declaration, Kind
from job_tracker.domain.errors import InvalidField, NotPossible, UnknownReference
from job_tracker.domain.guard import Guard
from job_tracker.scheduling.recipes import QueueRecipe
from job_tracker.scheduling.tree import changed
from job_tracker.store.declarations import DeclarationStore

_TRIES: Final = 20
_NAMES: Final = {
    Kind.ALGORITHM: (
        re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?"),
        "use 1 to 64 letters A to Z, digits and . _ -, and begin and end with a letter or digit",
    ),
    Kind.DATASET: (
        re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_=+-]|\.(?!\.)){0,127}"),
        "use 1 to 128 letters A to Z, digits and . _ - + =; begin with a letter, a digit or _, and do not "
        "put two dots in a row",
    ),
    Kind.QUEUE: (re.compile("[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?"), naming.PROJECT_RULE),
}


class Projects(Protocol):
    """The projects that exist."""

    def get(self, name: str) -> Project | None:
        """Return the project with this name; None if it does not exist."""
        ...

    def names(self) -> Collection[str]:
        """Return the names of all projects."""
        ...

    def is_deletable(self, name: str) -> bool:
        """Return whether the API can delete the project.

        The project must be stored, and must not be `default` or declared in a file.
        """
        ...


@dataclass(frozen=True, slots=True)
class ListedQueue:
    """A queue, and how one project can use it."""

    entry: Entry[QueueRecipe]
    takes_jobs: bool
    """Whether jobs of the project may name the queue."""
    is_default: bool
    """Whether jobs of the project that name no queue wait in this queue."""


_UNDECLARED: Final = Entry(name=naming.DEFAULT_QUEUE, value=QueueRecipe(), origin=Origin.SHIPPED)


class Declarations:
    """Lists, declares and removes algorithms, datasets and queues.

    Every operation raises Forbidden if the caller's role does not allow it (domain/rights.py). Changes for
    one project need at least the role admin in that project; changes for all projects need an operator. A
    change takes effect in this replica when the operation returns, and in other replicas within a second.
    Jobs that were accepted stay as they are.
    """

    def __init__(
        self,
        store: DeclarationStore,
        catalog: DeclaredCatalog,
        projects: Projects,
        clock: Callable[[], datetime] = utc_now,
        note: EventObserver = ignore_event,
        occupied: FindOccupied = none_occupied,
    ) -> None:
        """`note` gets an event for each denial. `occupied` finds queues with jobs that have not ended."""
        self._store = store
        self._catalog = catalog
        self._projects = projects
        self._clock = clock
        self._occupied = occupied
        self._guard = Guard(note, clock)

    async def list_algorithms(
        self, caller: Caller, project: str, name: str = ""
    ) -> Sequence[Entry[Algorithm]]:
        """Return the algorithms of the project, sorted by name.

        An empty project stands for the caller's default project. With a `name`, return only this algorithm.
        Raises UnknownReference if it does not exist.
        """
        project = project or caller.default_project
        self._guard.check(caller, "list_algorithms", project)
        return _chosen(self._catalog.algorithms(project), Kind.ALGORITHM, name)

    async def list_datasets(self, caller: Caller, project: str, name: str = "") -> Sequence[Entry[Dataset]]:
        """Return the datasets of the project, sorted by id.

        An empty project stands for the caller's default project. With a `name`, return only the entry that
        applies to this dataset: the dataset's own entry, or else the entry `*`, which applies to any dataset.
        Raises UnknownReference if there is neither.
        """
        project = project or caller.default_project
        self._guard.check(caller, "list_datasets", project)
        datasets = self._catalog.datasets(project)
        return _chosen(datasets, Kind.DATASET, name and dataset_entry_of(name, datasets))

    async def set_algorithm(
        self, caller: Caller, name: str, project: str, definition: str
    ) -> Entry[Algorithm]:
        """Declare or change an algorithm of a project, and return its entry.

        An empty project stands for all projects.

        Raises InvalidField, UnknownReference, NotPossible and TooManyDeclarations. Raises Forbidden, too, if
        the service accepts no algorithms through the API.
        """
        self._check_right(caller, "set_algorithm", project)
        self._check_project(project)
        return self._catalog.algorithm_of(await self._set(caller, Kind.ALGORITHM, name, project, definition))

    async def set_dataset(self, caller: Caller, name: str, project: str, definition: str) -> Entry[Dataset]:
        """Declare or change a dataset of a project, and return its entry.

        An empty project stands for all projects.

        Raises InvalidField, UnknownReference, NotPossible and TooManyDeclarations.
        """
        self._check_right(caller, "set_dataset", project)
        self._check_project(project)
        return self._catalog.dataset_of(await self._set(caller, Kind.DATASET, name, project, definition))

    async def remove_algorithm(self, caller: Caller, name: str, project: str) -> None:
        """Remove an algorithm that was declared through the API.

        Raises UnknownReference if there is no such algorithm, and NotPossible if it is built in or declared
        in a file.
        """
        self._check_right(caller, "remove_algorithm", project)
        await self._remove(caller, Kind.ALGORITHM, name, project)

    async def remove_dataset(self, caller: Caller, name: str, project: str) -> None:
        """Remove a dataset that was declared through the API.

        Raises UnknownReference if there is no such dataset, and NotPossible if it is built in or declared
        in a file.
        """
        self._check_right(caller, "remove_dataset", project)
        await self._remove(caller, Kind.DATASET, name, project)

    async def list_queues(self, caller: Caller, project: str, name: str = "") -> Sequence[ListedQueue]:
        """Return the queues that jobs of the project may use, and all queues above them, sorted by name.

        If the caller has a role in all projects, an empty project stands for all queues. For other callers,
        an empty project stands for their default project. With a `name`, return only the one of these queues
        that has this name. Raises UnknownReference if none has it.
        """
        tree, used = self._catalog.tree, project or caller.default_project
        if project or ALL_PROJECTS not in caller.roles:
            self._guard.check(caller, "list_queues", used)
            names = {each for leaf in tree.of_project(used) for each in tree.up_from(leaf)}
        else:
            self._guard.check_everywhere(caller, "list_queues")
            names = {*tree.queues, *self._catalog.queues}
        entries = {each: self._catalog.queues.get(each) or _UNDECLARED for each in names}
        return [
            ListedQueue(
                entry,
                takes_jobs=not entry.problem and tree.allows(entry.name, used),
                is_default=entry.name == tree.default_of(used),
            )
            for entry in _chosen(entries, Kind.QUEUE, name)
        ]

    async def set_queue(self, caller: Caller, name: str, definition: str) -> ListedQueue:
        """Declare a queue, or change it. Return its entry, and how the caller's default project can use it.

        Jobs that were accepted stay in the queue, even if the queue would now refuse them. Raises
        InvalidField, NotPossible and TooManyDeclarations.
        """
        self._guard.check_everywhere(caller, "set_queue")
        entry = self._catalog.queue_of(await self._set(caller, Kind.QUEUE, name, "", definition))
        tree, project = self._catalog.tree, caller.default_project
        return ListedQueue(
            entry, takes_jobs=tree.allows(name, project), is_default=tree.default_of(project) == name
        )

    async def remove_queue(self, caller: Caller, name: str) -> None:
        """Remove a queue that was declared through the API.

        Raises UnknownReference if there is no such queue, and NotPossible if a file declares it. Also raises
        NotPossible while the queue has jobs, or is the parent of queues.
        """
        self._guard.check_everywhere(caller, "remove_queue")
        await self._remove(caller, Kind.QUEUE, name, "")

    async def _check_queue(self, name: str, definition: str | None) -> None:
        """Raise InvalidField or NotPossible if the queue cannot have this definition.

        With None as definition, check whether the queue can be removed.
        """
        recipe = None if definition is None else self._catalog.read_queue(definition)
        if recipe is not None and (unknown := unknown_projects(recipe, self._projects.names())):
            raise InvalidField(
                "definition.projects",
                f"{quoted(unknown[0])} doesn't exist; allowed: {listed(self._projects.names())}",
            )
        before = self._catalog.tree
        try:
            after = changed(before, name, recipe)
        except ValueError as error:
            if recipe is None:
                raise NotPossible(
                    f"queue {name} cannot be removed: {error}; first change or remove what this names"
                ) from None
            place, _, reason = str(error).partition(": ")
            own = place.removeprefix(f"{name}.")
            raise (
                InvalidField("definition", str(error))
                if own == place
                else InvalidField(f"definition.{own}", reason)
            ) from None
        gone = before.leaves - after.leaves
        occupied = sorted(await self._occupied(gone)) if gone else []
        if occupied:
            how = "be removed" if recipe is None else f"be the parent of {name}"
            raise NotPossible(
                f"queue {listed(occupied)} cannot {how} while jobs wait or run there; cancel them, or wait "
                "until they have ended (set max_queued = 0, so that the queue accepts no more jobs)"
            )

    def _check_right(self, caller: Caller, operation: str, project: str) -> None:
        if project:
            self._guard.check(caller, operation, project)
        else:
            self._guard.check_everywhere(caller, operation)

    def _check_project(self, project: str) -> None:
        # A removal skips this check: a project that is no longer in a file may still have declarations.
        if project and self._projects.get(project) is None:
            raise UnknownReference("project", f"{quoted(project)} doesn't exist")

    async def _set(self, caller: Caller, kind: Kind, name: str, project: str, definition: str) -> Declaration:
        """Store a definition, and return its declaration, which another call may already have replaced."""
        pattern, rule = _NAMES[kind]
        if not pattern.fullmatch(name):
            raise InvalidField("name", f"{quoted(name)} is not allowed; {rule}")
        if kind is Kind.ALGORITHM and name.casefold() == PROGRAM:
            raise InvalidField(
                "name", f"{quoted(name)} is not allowed: it stands for uploaded programs; use another name"
            )
        wanted = Declaration(
            kind=kind,
            name=name,
            project=project,
            definition=canonical(definition),
            changed_at=self._clock(),
            changed_by=caller.name,
        )
        await self._catalog.refresh()
        self._catalog.check(wanted)
        for _ in range(_TRIES):
            seen, stored = await self._store.declarations()
            self._check_name(wanted, stored)
            before = next((each for each in stored if _place(each) == _place(wanted)), None)
            if before is not None and parsed(before.definition) == parsed(wanted.definition):
                await self._catalog.refresh()
                return before
            if kind is Kind.QUEUE:
                await self._catalog.refresh()
                await self._check_queue(name, wanted.definition)
            event = self._event(caller, f"set_{kind}", wanted, f"version {seen + 1}")
            if await self._store.put_declaration(
                wanted, seen, project_must_be_stored=self._projects.is_deletable(project), event=event
            ):
                await self._catalog.refresh()
                return replace(wanted, version=seen + 1)
        raise _busy(kind)

    async def _remove(self, caller: Caller, kind: Kind, name: str, project: str) -> None:
        for _ in range(_TRIES):
            seen, stored = await self._store.declarations()
            before = next((each for each in stored if _place(each) == (kind, project, name)), None)
            if before is None:
                raise self._not_stored(kind, name, project)
            if kind is Kind.QUEUE:
                await self._catalog.refresh()
                await self._check_queue(name, None)
            event = self._event(caller, f"remove_{kind}", before, f"version {before.version}")
            if await self._store.remove_declaration(before, seen, event=event):
                await self._catalog.refresh()
                return
        raise _busy(kind)

    def _check_name(self, wanted: Declaration, stored: Sequence[Declaration]) -> None:
        """Raise NotPossible if the wanted name is already in use.

        A name is in use if a file declares it, or if another declaration has it and a project could use both
        declarations. Upper and lower case do not matter.
        """
        files, kind = self._catalog.files, wanted.kind
        for name in files.names(kind):
            if name.casefold() == wanted.name.casefold():
                origin = "built in" if files.is_shipped(kind, name) else "declared in a file of the service"
                raise NotPossible(
                    f"{kind} {wanted.name} cannot be declared: {kind} {name} is {origin}; use another name, "
                    f"or change this {kind} in the configuration of the service"
                )
        for other in stored:
            if (
                other.kind is kind
                and other.name.casefold() == wanted.name.casefold()
                and _place(other) != _place(wanted)
                and (other.project == wanted.project or not (other.project and wanted.project))
            ):
                where = f"in project {other.project}" if other.project else "for all projects"
                raise NotPossible(
                    f"{kind} {wanted.name} cannot be declared: {kind} {other.name} is declared {where}; use "
                    "another name, or remove that one"
                )

    def _not_stored(self, kind: Kind, name: str, project: str) -> Exception:
        files = self._catalog.files
        if name not in files.names(kind):
            where = f"in project {project}" if project else "for all projects"
            return UnknownReference("name", f"{kind} {quoted(name)} is not declared {where}")
        if files.is_shipped(kind, name):
            return NotPossible(
                f"{kind} {name} is built in, and cannot be removed; to leave out the built-in entries, set "
                "catalog.replace_shipped"
            )
        return NotPossible(f"{kind} {name} is declared in a file of the service; remove it there")

    def _event(self, caller: Caller, action: str, about: Declaration, detail: str) -> Any:
        return event_of(
            caller,
            action,
            Outcome.DONE,
            self._clock(),
            project=about.project,
            target=f"{about.kind} {about.name}",
            detail=detail,
        )


def _chosen(entries: Mapping[str, Entry[Any]], kind: Kind, name: str) -> Sequence[Entry[Any]]:
    if not name:
        return [entries[each] for each in sorted(entries)]
    if name not in entries:
        problem = f"{kind} {quoted(name)} doesn't exist"
        if advice := HOW_TO_ADD.get(kind):
            problem += f"; configured: {listed_like(name, entries)}; {advice}"
        raise UnknownReference("name", problem)
    return [entries[name]]


def _place(declaration: Declaration) -> tuple[Kind, str, str]:
    return declaration.kind, declaration.project, declaration.name


def _busy(kind: Kind) -> NotPossible:
    return NotPossible(f"other calls keep changing {kind}s; try again")

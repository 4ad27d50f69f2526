"""The catalog of a running service, in memory: the entries of its files and the entries of the API."""

import asyncio
import logging
import time
from collections import ChainMap
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from job_tracker.catalog import Algorithm, Dataset, Entry, Origin
from job_tracker.catalog.entries import Algorithms, Datasets, listed
from job_tracker.declarations.reading import Reader, check_images, images_of
from job_tracker.domain.declaration import Declaration, Kind
from job_tracker.domain.errors import Forbidden, InvalidField, StoreUnavailable
from job_tracker.scheduling.model import DEFAULT_FLAVOR, INSTANCES, Flavor
from job_tracker.scheduling.recipes import QueueRecipe
from job_tracker.scheduling.tree import Pool, Tree, tree_of
from job_tracker.store.declarations import DeclarationStore

log = logging.getLogger(__name__)

T = TypeVar("T")

CHECK_SECONDS: Final = 0.5
_RETRY_SECONDS: Final = 10.0
_NO_POOL: Final = Pool((Flavor(name=DEFAULT_FLAVOR, capacity={INSTANCES: 8}),))


@dataclass(frozen=True, slots=True)
class Files:
    """The algorithms, datasets and queues that a service's files declare, by name."""

    algorithms: Mapping[str, Algorithm] = field(default_factory=dict)
    datasets: Mapping[str, Dataset] = field(default_factory=dict)
    queues: Mapping[str, QueueRecipe] = field(default_factory=dict)
    pool: Pool = _NO_POOL
    """The capacity and flavors that the queues share."""
    shipped: Mapping[Kind, frozenset[str]] = field(default_factory=dict)
    """The names of the built-in entries, by kind."""

    def names(self, kind: Kind) -> Collection[str]:
        """Return the names of the entries of a kind."""
        tables: Mapping[Kind, Mapping[str, object]] = {
            Kind.ALGORITHM: self.algorithms,
            Kind.DATASET: self.datasets,
            Kind.QUEUE: self.queues,
        }
        return tables[kind].keys()

    def is_shipped(self, kind: Kind, name: str) -> bool:
        """Return whether an entry is built in."""
        return name in self.shipped.get(kind, ())


ReadFiles = Callable[[], Files]
"""Returns the entries of files.

The result is the same object until a file has changed. The function may block, since it may read files.
"""
FindOccupied = Callable[[Collection[str]], Awaitable[Collection[str]]]
"""Returns which of the given queues have jobs that have not ended. Raises StoreUnavailable."""


async def none_occupied(_names: Collection[str]) -> Collection[str]:
    """Return no queues. This function is a FindOccupied."""
    return ()


def command_of(kind: Kind) -> str:
    """Return the name of trainctl's command for declarations of a kind."""
    return "queues" if kind is Kind.QUEUE else kind


def unknown_projects(recipe: QueueRecipe, known: Collection[str]) -> list[str]:
    """Return the projects that the queue lists although they do not exist."""
    return [name for name in recipe.projects if name not in known]


@dataclass(frozen=True, slots=True)
class _Refused:
    """Files that are refused, because they remove a queue that has jobs, or make it a parent.

    At the time `until`, the files are checked again.
    """

    files: Files | None = None
    until: float = 0.0
    problem: str = ""


class DeclaredCatalog:
    """A Catalog with the entries of files and of the API.

    Entries of algorithms and datasets are the same objects until they change.

    If a file and the API declare the same name, the entry of the file is used. If the API declares the name
    of a built-in entry, the entry of the API is used. If a changed setting makes an entry of the API invalid,
    the entry stays, but cannot be used.
    """

    def __init__(
        self,
        store: DeclarationStore,
        reader: Reader,
        read_files: ReadFiles = Files,
        occupied: FindOccupied = none_occupied,
        projects: Callable[[], Collection[str]] | None = None,
    ) -> None:
        """`projects` returns the names of the projects that exist. If it is None, the names are unknown."""
        self._store = store
        self._reader = reader
        self._read_files = read_files
        self._occupied = occupied
        self._projects = projects
        self._refused = _Refused()
        self._problem_of_files: Callable[[], str | None] = lambda: None
        self._loading = asyncio.Lock()
        self._number: int | None = None
        self._files = Files()
        self._stored: Sequence[Declaration] = ()
        self._algorithms: dict[str, dict[str, Entry[Algorithm]]] = {"": {}}
        self._datasets: dict[str, dict[str, Entry[Dataset]]] = {"": {}}
        self._queues: dict[str, Entry[QueueRecipe]] = {}
        self._tree = tree_of(_NO_POOL, {})
        self._callbacks: list[Callable[[], None]] = []

    @property
    def files(self) -> Files:
        """The entries that come from the service's files, as of the last refresh."""
        return self._files

    @property
    def stored(self) -> Sequence[Declaration]:
        """The entries that were declared through the API, as of the last refresh."""
        return self._stored

    @property
    def problem(self) -> str:
        """The reason why the current files are not in use; empty if they are."""
        return self._refused.problem or self._problem_of_files() or ""

    def declare(self, read_files: ReadFiles, problem: Callable[[], str | None] = lambda: None) -> None:
        """Use other files from the next refresh on.

        `problem` returns the reason why these files cannot be used now; None if they can be used.
        """
        self._read_files, self._problem_of_files = read_files, problem

    def algorithms(self, project: str) -> Algorithms:
        """See Catalog."""
        return _of(self._algorithms, project)

    def datasets(self, project: str) -> Datasets:
        """See Catalog."""
        return _of(self._datasets, project)

    @property
    def queues(self) -> Mapping[str, Entry[QueueRecipe]]:
        """The declared queues by name. The queue `default` may be used even if it is not declared."""
        return self._queues

    @property
    def tree(self) -> Tree:
        """The tree of all queues: the same object until a queue, a flavor or a priority changes."""
        return self._tree

    @contextmanager
    def calling(self, on_change: Callable[[], None]) -> Iterator[None]:
        """Within this context, call `on_change` after each change of `tree`, the tree of all queues."""
        self._callbacks.append(on_change)
        try:
            yield
        finally:
            self._callbacks.remove(on_change)

    def check(self, declaration: Declaration) -> None:
        """Raise InvalidField or Forbidden if the definition cannot be used in its project."""
        if declaration.kind is Kind.DATASET:
            self._reader.dataset(declaration.definition)
            return
        if declaration.kind is Kind.QUEUE:
            self._reader.queue(declaration.definition)
            return
        algorithm = self._reader.algorithm(declaration.definition)
        if declaration.project:
            check_images(algorithm, self._images())

    def read_queue(self, definition: str) -> QueueRecipe:
        """Read the definition of a queue. Raises InvalidField if the definition is not allowed."""
        return self._reader.queue(definition)

    def algorithm_of(self, declaration: Declaration) -> Entry[Algorithm]:
        """Return the entry for this declaration of an algorithm, even if the declaration was replaced."""
        return self._algorithm(declaration, self._images(), None)

    def dataset_of(self, declaration: Declaration) -> Entry[Dataset]:
        """Return the entry for this declaration of a dataset, even if the declaration was replaced."""
        return self._dataset(declaration, None)

    def queue_of(self, declaration: Declaration) -> Entry[QueueRecipe]:
        """Return the entry for this declaration of a queue, even if the declaration was replaced."""
        return self._queue(declaration)

    async def refresh(self) -> None:
        """Load the files, and the declarations of the API, if they have changed. Raises StoreUnavailable."""
        async with self._loading:
            files = await self._accepted(await asyncio.to_thread(self._read_files))
            number = await self._store.declarations_version()
            if number == self._number and files is self._files:
                return
            if number != self._number:
                number, self._stored = await self._store.declarations()
            self._files = files
            self._build()
            self._number = number

    async def _accepted(self, files: Files) -> Files:
        """Return `files`.

        While they leave out a queue that has jobs, or make it a parent, return the previous files instead.
        """
        if files is self._files or self._number is None or files.queues == self._files.queues:
            self._refused = _Refused()
            return files
        now = time.monotonic()
        if files is self._refused.files and now < self._refused.until:
            return self._files
        after = tree_of(files.pool, files.queues, also=_recipes(self._queues))
        gone = self._tree.leaves - after.leaves
        occupied = sorted(await self._occupied(gone)) if gone else []
        if not occupied:
            self._refused = _Refused()
            return files
        problem = (
            f"scheduling.queues: {listed(occupied)} cannot be removed or become a parent while jobs wait or "
            "run there"
        )
        if files is not self._refused.files:
            log.error("%s; the previous content stays in use until these jobs have ended", problem)
        self._refused = _Refused(files, now + _RETRY_SECONDS, problem)
        return self._files

    async def follow(self) -> None:
        """Refresh twice a second, until cancelled."""
        problem, used = "", self._files
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.refresh()
                problem = ""
                if self._files is not used:
                    used = self._files
                    log.info("the catalog uses the changed files")
            except StoreUnavailable as error:
                if str(error) != problem:
                    log.warning("changes of the catalog cannot be seen: %s", error)
                problem = str(error)
            except Exception:  # the task must survive every error, or later changes would not be seen
                log.exception("changes of the catalog cannot be followed")

    def _build(self) -> None:
        files = self._files
        algorithms = {"": _of_files(Kind.ALGORITHM, files, files.algorithms, self._algorithms[""])}
        datasets = {"": _of_files(Kind.DATASET, files, files.datasets, self._datasets[""])}
        before = (self._algorithms, self._datasets)
        self._algorithms, self._datasets = algorithms, datasets
        images = frozenset[str]()
        queues: dict[str, Entry[QueueRecipe]] = {}
        for declaration in sorted(self._stored, key=lambda each: each.project):
            kind, project, name = declaration.kind, declaration.project, declaration.name
            if name in files.names(kind) and not files.is_shipped(kind, name):
                log.error(
                    "%s %s is declared in a file and through the API%s; the file is used. Remove it from the "
                    "file, or with `trainctl %s%s rm %s`",
                    *(kind, name, f" in project {project}" if project else ""),
                    *(f"--project {project} " if project else "", command_of(kind), name),
                )
                continue
            if project and not images:
                images = self._images()
            if kind is Kind.ALGORITHM:
                known = before[0].get(project, {}).get(name)
                algorithms.setdefault(project, {})[name] = self._algorithm(declaration, images, known)
            elif kind is Kind.DATASET:
                seen = before[1].get(project, {}).get(name)
                datasets.setdefault(project, {})[name] = self._dataset(declaration, seen)
            else:
                queues[name] = self._queue(declaration)
        self._build_tree(queues)

    def _build_tree(self, declared: Mapping[str, Entry[QueueRecipe]]) -> None:
        files, before = self._files, self._tree
        also = _recipes(declared)
        tree = tree_of(files.pool, files.queues, also=also)
        if tree != before:
            self._tree = tree
            self._check_projects(before)
        of_files = {name: Entry(name=name, value=recipe) for name, recipe in files.queues.items()}
        for name, entry in declared.items():
            problem = entry.problem or tree.problems.get(name, "")
            of_files[name] = replace(entry, problem=problem)
            known = self._queues.get(name)
            if problem and (known is None or known.problem != problem):
                log.warning("queue %s takes no jobs: %s", name, problem)
        self._queues = of_files
        if self._tree is not before:
            for callback in self._callbacks:
                callback()

    def _check_projects(self, before: Tree) -> None:
        """Log a warning for each new or changed queue that lists projects which do not exist."""
        if self._projects is None:
            return
        known = self._projects()
        for name, recipe in self._tree.recipes.items():
            if name not in before.recipes or before.recipes[name].projects != recipe.projects:
                for project in unknown_projects(recipe, known):
                    log.warning("queue %s lists project %s, which doesn't exist", name, project)

    def _algorithm(
        self, declaration: Declaration, images: Collection[str], known: Entry[Algorithm] | None
    ) -> Entry[Algorithm]:
        value = known.value if known and known.version == declaration.version else None
        problem = ""
        try:
            # A definition is parsed once. The images of a project's algorithm are checked each time: each of
            # them must also be used by an algorithm for all projects, and those algorithms may have changed.
            value = value or self._reader.algorithm(declaration.definition)
            if declaration.project:
                check_images(value, images)
        except (InvalidField, Forbidden) as error:
            value, problem = None, str(error)
        return _kept(known, _entry(declaration, value, problem))

    def _dataset(self, declaration: Declaration, known: Entry[Dataset] | None) -> Entry[Dataset]:
        if known is not None and known.version == declaration.version:
            return known  # only the definition decides whether the entry can be used
        value, problem = None, ""
        try:
            value = self._reader.dataset(declaration.definition)
        except InvalidField as error:
            problem = str(error)
        return _kept(known, _entry(declaration, value, problem))

    def _queue(self, declaration: Declaration) -> Entry[QueueRecipe]:
        value, problem = None, ""
        try:
            value = self._reader.queue(declaration.definition)
        except InvalidField as error:
            problem = str(error)
        return _entry(declaration, value, problem)

    def _images(self) -> frozenset[str]:
        """Return the images of the algorithms that are available to all projects.

        Only operators declare such algorithms, so operators decide which images a project's own algorithms
        may use.
        """
        return frozenset(image for image in _images(self._algorithms[""].values()))


def _recipes(entries: Mapping[str, Entry[QueueRecipe]]) -> dict[str, QueueRecipe]:
    """Return the valid recipes of the queues that were declared through the API, by name."""
    return {name: each.value for name, each in entries.items() if each.value and each.origin is Origin.API}


def _entry(declaration: Declaration, value: T | None, problem: str) -> Entry[T]:
    return Entry(
        name=declaration.name,
        value=value,
        problem=problem,
        origin=Origin.API,
        project=declaration.project,
        version=declaration.version,
        changed_at=declaration.changed_at,
        changed_by=declaration.changed_by,
        definition=declaration.definition,
    )


def _kept(known: Entry[T] | None, made: Entry[T]) -> Entry[T]:
    """Return the previous entry, `known`, if its version and problem are still the same; otherwise `made`."""
    if known is not None and (known.version, known.problem) == (made.version, made.problem):
        return known
    if made.problem:
        log.warning("%s in the catalog cannot be used: %s", made.name, made.problem)
    return made


def _images(entries: Collection[Entry[Algorithm]]) -> Iterator[str]:
    for entry in entries:
        if entry.value is not None:
            yield from images_of(entry.value)


def _of(tables: Mapping[str, dict[str, Entry[T]]], project: str) -> Mapping[str, Entry[T]]:
    own = tables.get(project)
    return ChainMap(own, tables[""]) if own and project else tables[""]


def _of_files(
    kind: Kind, files: Files, values: Mapping[str, T], before: Mapping[str, Entry[T]]
) -> dict[str, Entry[T]]:
    entries = {}
    for name, value in values.items():
        origin = Origin.SHIPPED if files.is_shipped(kind, name) else Origin.FILE
        known = before.get(name)
        is_same = known is not None and known.origin is origin and known.value == value
        entries[name] = known if is_same and known else Entry(name=name, value=value, origin=origin)
    return entries

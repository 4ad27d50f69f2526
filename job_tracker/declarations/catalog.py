"""The catalog of a running service, in memory: the entries of its files and those of the API."""

import asyncio
import logging
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from job_tracker.catalog import Algorithm, Dataset, Entry, Origin
from job_tracker.catalog.entries import Algorithms, Datasets
from job_tracker.declarations.reading import Reader, check_images, images_of
from job_tracker.domain.declaration import Declaration, Kind
from job_tracker.domain.errors import Forbidden, InvalidField, StoreUnavailable
from job_tracker.store.declarations import DeclarationStore

log = logging.getLogger(__name__)

T = TypeVar("T", Algorithm, Dataset)

CHECK_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Files:
    """The algorithms and datasets of the files of a service, by name."""

    algorithms: Mapping[str, Algorithm] = field(default_factory=dict)
    datasets: Mapping[str, Dataset] = field(default_factory=dict)
    shipped: Mapping[Kind, frozenset[str]] = field(default_factory=dict)
    """The names of those that are built in."""

    def names(self, kind: Kind) -> Collection[str]:
        """Return the names of a kind."""
        return (self.algorithms if kind is Kind.ALGORITHM else self.datasets).keys()

    def is_shipped(self, kind: Kind, name: str) -> bool:
        """Return whether an entry is built in."""
        return name in self.shipped.get(kind, ())


ReadFiles = Callable[[], Files]
"""Returns the entries of files: the same object, until a file has changed. It may read files."""


class DeclaredCatalog:
    """A Catalog of files and of the API. Entries are the same objects until they change.

    If a file and the API have the same name, the file counts. An entry of the API that has become impossible,
    because a setting has changed, stays as one that cannot be used.
    """

    def __init__(self, store: DeclarationStore, reader: Reader, read_files: ReadFiles = Files) -> None:
        self._store = store
        self._reader = reader
        self._read_files = read_files
        self._loading = asyncio.Lock()
        self._number: int | None = None
        self._files = Files()
        self._stored: Sequence[Declaration] = ()
        self._algorithms: dict[str, dict[str, Entry[Algorithm]]] = {"": {}}
        self._datasets: dict[str, dict[str, Entry[Dataset]]] = {"": {}}

    @property
    def files(self) -> Files:
        """The entries of files, as of the last refresh."""
        return self._files

    @property
    def stored(self) -> Sequence[Declaration]:
        """The declarations of the API, as of the last refresh."""
        return self._stored

    def declare(self, read_files: ReadFiles) -> None:
        """Use other files from the next refresh on."""
        self._read_files = read_files

    def algorithms(self, project: str) -> Algorithms:
        """See Catalog."""
        return _of(self._algorithms, project)

    def datasets(self, project: str) -> Datasets:
        """See Catalog."""
        return _of(self._datasets, project)

    def check(self, declaration: Declaration) -> None:
        """Raise InvalidField or Forbidden unless the definition can be used in its project."""
        if declaration.kind is Kind.DATASET:
            self._reader.dataset(declaration.definition)
            return
        algorithm = self._reader.algorithm(declaration.definition)
        if declaration.project:
            check_images(algorithm, self._images())

    def algorithm_of(self, declaration: Declaration) -> Entry[Algorithm]:
        """Return the entry of a stored algorithm, also if it is no longer the newest."""
        return self._algorithm(declaration, self._images(), None)

    def dataset_of(self, declaration: Declaration) -> Entry[Dataset]:
        """Return the entry of a stored dataset, also if it is no longer the newest."""
        return self._dataset(declaration, None)

    async def refresh(self) -> None:
        """Look for changes of files and by the API. Raises StoreUnavailable."""
        async with self._loading:
            files = await asyncio.to_thread(self._read_files)
            number = await self._store.declarations_version()
            if number == self._number and files is self._files:
                return
            if number != self._number:
                number, self._stored = await self._store.declarations()
            self._files = files
            self._build()
            self._number = number

    async def follow(self) -> None:
        """Refresh twice a second, until cancelled."""
        problem = ""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.refresh()
                problem = ""
            except StoreUnavailable as error:
                if str(error) != problem:
                    log.warning("changes of algorithms and datasets cannot be seen: %s", error)
                problem = str(error)
            except Exception:  # any error: without this task, later changes would not be seen
                log.exception("changes of algorithms and datasets cannot be followed")

    def _build(self) -> None:
        files = self._files
        algorithms = {"": _of_files(Kind.ALGORITHM, files, files.algorithms, self._algorithms[""])}
        datasets = {"": _of_files(Kind.DATASET, files, files.datasets, self._datasets[""])}
        before = (self._algorithms, self._datasets)
        self._algorithms, self._datasets = algorithms, datasets
        images = frozenset[str]()
        for declaration in sorted(self._stored, key=lambda each: each.project):
            kind, project, name = declaration.kind, declaration.project, declaration.name
            if name in files.names(kind) and not files.is_shipped(kind, name):
                log.error(
                    "%s %s is declared in a file and by the API%s; the file counts. Remove it from the file, "
                    "or by `trainctl %s%s rm %s`",
                    *(kind, name, f" in project {project}" if project else ""),
                    *(f"--project {project} " if project else "", kind, name),
                )
                continue
            if project and not images:
                images = self._images()
            if kind is Kind.ALGORITHM:
                known = before[0].get(project, {}).get(name)
                algorithms.setdefault(project, {})[name] = self._algorithm(declaration, images, known)
            else:
                seen = before[1].get(project, {}).get(name)
                datasets.setdefault(project, {})[name] = self._dataset(declaration, seen)

    def _algorithm(
        self, declaration: Declaration, images: Collection[str], known: Entry[Algorithm] | None
    ) -> Entry[Algorithm]:
        value = known.value if known and known.version == declaration.version else None
        problem = ""
        try:
            # Parsed once. Its images are checked each time, since other algorithms decide which are allowed.
            value = value or self._reader.algorithm(declaration.definition)
            if declaration.project:
                check_images(value, images)
        except (InvalidField, Forbidden) as error:
            value, problem = None, str(error)
        return _kept(known, _entry(declaration, value, problem))

    def _dataset(self, declaration: Declaration, known: Entry[Dataset] | None) -> Entry[Dataset]:
        if known is not None and known.version == declaration.version:
            return known  # only its definition decides whether it can be used
        value, problem = None, ""
        try:
            value = self._reader.dataset(declaration.definition)
        except InvalidField as error:
            problem = str(error)
        return _kept(known, _entry(declaration, value, problem))

    def _images(self) -> frozenset[str]:
        """Return the images of the algorithms of all projects, which operators have chosen."""
        return frozenset(image for image in _images(self._algorithms[""].values()))


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
    """The entry from before, if nothing has changed."""
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

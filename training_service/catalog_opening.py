"""Opens the catalog of algorithms, datasets and queues that the settings describe."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from job_tracker.access.projects import Projects
from job_tracker.declarations.catalog import DeclaredCatalog, Files, command_of
from job_tracker.declarations.occupied import Occupied
from job_tracker.declarations.operations import Declarations
from job_tracker.declarations.reading import Reader
from job_tracker.domain.audit import EventObserver, ignore_event
from job_tracker.domain.declaration import Declaration, Kind
from job_tracker.store.base import Store
from training_service.auth.live import Live, Unusable, is_special
from training_service.settings import Settings
from training_service.settings.loading import SettingsError
from training_service.settings.protection import may_send_code

_TABLES: Final = {Kind.ALGORITHM: "algorithms", Kind.DATASET: "datasets", Kind.QUEUE: "scheduling.queues"}


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """The file from which the settings were loaded, and how to load them again."""

    path: Path
    load: Callable[[], Settings]
    """Loads the settings again. Raises SettingsError."""


@dataclass(frozen=True, slots=True)
class OpenedCatalog:
    """The algorithms, datasets and queues of the service, and the operations on them."""

    catalog: DeclaredCatalog
    operations: Declarations


async def open_catalog(
    settings: Settings,
    store: Store,
    projects: Projects,
    note: EventObserver = ignore_event,
    file: ConfigurationFile | None = None,
) -> OpenedCatalog:
    """Read the declared entries, and return the catalog.

    Changes of `file` take effect without a restart, unless `file` is a pipe.

    Raises Unusable if a configured entry that is not shipped was also declared through the API.
    """
    catalog = DeclaredCatalog(
        store, reader_of(settings), occupied=(occupied := Occupied(store)), projects=projects.names
    )
    await catalog.refresh()
    configured = files_of(settings)
    _refuse_both(configured, catalog.stored)
    # A pipe, such as that of `--config <(…)`, can be read only once, and the settings already have its
    # content.
    is_watched = file is not None and not is_special(file.path)
    if file is not None and is_watched:
        live = _watched(file, catalog)
        catalog.declare(live.get, lambda: live.problem)
    else:
        catalog.declare(lambda: configured)
    await catalog.refresh()
    return OpenedCatalog(catalog, Declarations(store, catalog, projects, note=note, occupied=occupied))


def files_of(settings: Settings) -> Files:
    """Return the entries of the configuration, including the shipped ones."""
    return Files(
        algorithms=settings.algorithms,
        datasets=settings.datasets,
        queues=settings.scheduling.queues,
        pool=settings.scheduling.pool(settings.followed_flavors, settings.plugin.flavors),
        shipped={
            Kind.ALGORITHM: _equal(settings.algorithms, settings.shipped_algorithms()),
            Kind.DATASET: _equal(settings.datasets, settings.shipped_datasets),
        },
    )


def _equal(configured: Mapping[str, object], shipped: Mapping[str, object]) -> frozenset[str]:
    """Return the names of the configured entries that equal the shipped entries of the same name."""
    return frozenset(name for name, value in shipped.items() if configured.get(name) == value)


def reader_of(settings: Settings) -> Reader:
    """Return the reader of definitions that callers send."""
    return Reader(
        algorithm_model=settings.algorithm_model(),
        check_algorithm=settings.check_algorithm,
        refusal=_refusal_of(settings),
        dataset_uris=(f"{settings.storage.root}/versionedDatasets", *settings.catalog.dataset_uris),
    )


def _refusal_of(settings: Settings) -> str:
    """Return why this service refuses algorithms that callers declare; "" if it accepts them.

    Algorithms are code. So if `catalog.declared_algorithms` is unset, the rules for programs apply to them.
    """
    wanted = settings.catalog.declared_algorithms
    name = "catalog.declared_algorithms"
    if wanted is None:
        wanted, name = settings.programs.enabled, "programs.enabled"
    if wanted is None and not may_send_code(settings):
        return (
            "this service accepts no algorithms through the API, since callers need not prove who they are "
            "(catalog.declared_algorithms)"
        )
    return f"this service accepts no algorithms through the API ({name})" if wanted is False else ""


def _watched(file: ConfigurationFile, catalog: DeclaredCatalog) -> Live[Files]:
    def read() -> Files:
        try:
            files = files_of(file.load())
        except SettingsError as error:
            raise Unusable(f"the catalog: {error}".replace("\n", "; ")) from None
        _refuse_both(files, catalog.stored)
        return files

    return Live("the catalog", [file.path], read, announces=False)


def _refuse_both(files: Files, stored: Collection[Declaration]) -> None:
    """Raise Unusable if an entry of `files` that is not shipped was also declared through the API."""
    declared = {(each.kind, each.name.casefold()): each for each in stored}
    for kind, table in _TABLES.items():
        for name in files.names(kind):
            other = declared.get((kind, name.casefold()))
            if other is None or files.is_shipped(kind, name):
                continue
            where = f" in project {other.project}" if other.project else ""
            in_project = f" --project {other.project}" if other.project else ""
            raise Unusable(
                f"{table}.{name}: {kind} {other.name} was declared through the API{where}, too. Remove "
                f"{name} from the configuration; or, while the service runs without it, remove {other.name} "
                f"with `trainctl {command_of(kind)} rm {other.name}{in_project}`"
            )

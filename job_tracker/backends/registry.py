"""Backends by name. A package adds one by an entry point in the group job_tracker.backends."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import ValidationError

from job_tracker.backends.base import Backend
from job_tracker.catalog import Algorithm, RequestLimits
from job_tracker.common.config import Config
from job_tracker.common.validation import explain
from job_tracker.domain.group import InstanceOptions, InstanceSpec
from job_tracker.domain.job import JobSpec
from job_tracker.domain.observers import JobObserver, RequestObserver, ignore_job, ignore_request
from job_tracker.frameworks.job_environment import ExtraEnvironment, nothing_more
from job_tracker.logs.spool import FolderSpool, Spool

GROUP = "job_tracker.backends"


class Preflight(Protocol):
    """Looks whether the job of a spec could run, beyond what admission can tell by itself."""

    async def check(self, spec: JobSpec) -> None:
        """Raise InvalidField for a spec that would fail once it is launched."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a backend is given by the service that it runs in."""

    data_dir: Path
    """Of this service; a backend's files are below it."""
    store_id: str = ""
    """The id of the store that its jobs are in."""
    most_log: int = 100 << 20
    """Bytes that are kept of the log of a rank."""
    spool: FolderSpool
    """For the logs of stopped groups, unless the backend has a place for them."""
    stop_grace: timedelta = timedelta(seconds=10)
    """How long a process may take to end after it was asked to."""
    extra_environment: ExtraEnvironment = nothing_more
    on_request: RequestObserver = ignore_request


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A backend that is ready, and what there is to do with it besides running groups."""

    backend: Backend
    spool: Spool
    """Where logs of stopped groups wait on their way to storage."""
    preflight: Preflight | None = None
    on_save: JobObserver = ignore_job
    """Tells the engine's own people what becomes of the jobs that run on it."""
    silent_seconds: Callable[[], float | None] = lambda: None
    """How long an engine that reports changes, at least once a minute, has not done so; None of others."""


class BackendPlugin(Protocol):
    """A kind of backend, made with its settings: its part in configuration and admission, and its opening."""

    settings_model: ClassVar[type[Config]]
    """Its settings, the table that has its name; each has a default, as other backends may be chosen."""
    recipe_model: ClassVar[type[Config] | None] = None
    """How an algorithm runs on it, algorithms.NAME.BACKEND; None: it runs any algorithm."""
    role_model: ClassVar[type[Config] | None] = None
    """What roles may have of their own, algorithms.NAME.roles.ROLE.BACKEND; None: nothing."""

    def __init__(self, settings: Any) -> None: ...

    @property
    def limits(self) -> RequestLimits | None:
        """What a request may set of its instances; None: nothing."""
        return None

    def resolve(self, algorithm: Algorithm, role: str, sent: InstanceOptions) -> InstanceSpec:
        """What each instance of the role is to be. Raises ValueError for what does not fit together."""
        ...

    def address_for_ranks(self, host: str, port: int) -> str | None:  # noqa: ARG002
        """How ranks reach a server of this machine that listens there; None: not at all, or unknown."""
        return None

    async def open(self, surroundings: Surroundings) -> Opened:
        """Connect. Raises BackendRefused if the engine does not let us in."""
        ...


class BrokenPlugin(Exception):
    """A backend that some installed package brings cannot be used; says which, why, and what to do."""


@cache
def installed() -> Mapping[str, type[BackendPlugin]]:
    """The backends of all installed packages, by name. Raises BrokenPlugin."""
    points: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        if point.name in points:
            raise BrokenPlugin(
                f"{_origin(point)} and {_origin(points[point.name])} have one name: uninstall one of them"
            )
        points[point.name] = point
    if not points:
        raise BrokenPlugin("no backends are installed, not even its own: install training-service again")
    return {name: _loaded(point) for name, point in points.items()}


def _loaded(point: EntryPoint) -> type[BackendPlugin]:
    try:
        plugin: type[BackendPlugin] = point.load()
        plugin.settings_model()
    except ValidationError as error:
        raise _broken(point, explain(error, plugin.settings_model)) from error
    except Exception as error:  # whatever importing the code of others may raise
        raise _broken(point, f"{type(error).__name__}: {error}") from error
    return plugin


def _broken(point: EntryPoint, reason: str) -> BrokenPlugin:
    return BrokenPlugin(f"{_origin(point)} cannot be used: fix it or uninstall it ({reason})")


def _origin(point: EntryPoint) -> str:
    return f"backend {point.name} of package {point.dist.name if point.dist else point.value}"

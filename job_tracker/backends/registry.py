"""Backends by name. A package adds a backend with an entry point in the group job_tracker.backends."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import ValidationError

from job_tracker.backends.base import Backend, Inventory, RankAccess
from job_tracker.catalog import Algorithm, RequestLimits
from job_tracker.common.config import Config
from job_tracker.common.printable import quoted
from job_tracker.common.validation import explain
from job_tracker.domain.group import InstanceOptions, InstanceSpec
from job_tracker.domain.job_spec import JobSpec
from job_tracker.domain.observers import (
    JobObserver,
    RequestObserver,
    WaitingObserver,
    ignore_job,
    ignore_request,
)
from job_tracker.frameworks.job_environment import ExtraEnvironment, nothing_more
from job_tracker.logs.spool import FolderSpool, Spool
from job_tracker.trees.store import TreeStore

GROUP = "job_tracker.backends"


class Preflight(Protocol):
    """Asks the engine whether it would accept a job, in addition to the checks of admission."""

    async def check(self, spec: JobSpec) -> None:
        """Raise InvalidField for a spec whose launch would fail."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The folders, limits and settings of the service that a backend needs."""

    data_dir: Path
    """The data folder of the service, for files of the backend."""
    store_id: str = ""
    """The id of the store of the backend's jobs."""
    most_log: int = 100 << 20
    """The maximum size of the log of a rank, in bytes."""
    trees: TreeStore | None = None
    """The uploaded files of programs. A job's files are the tree `JobSpec.program.tree` of its project."""
    spool: FolderSpool
    """The spool for the logs of stopped groups, unless the backend has another place for them."""
    delegate: str = ""
    """The cluster's queue that decides when jobs start, such as `kueue`; empty: this service decides."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """The number of each class of `scheduling.priorities`, by the name of the class."""
    followed: Collection[str] = ()
    """The flavors whose capacity is that of their machines: see BackendPlugin.flavors."""
    stop_grace: timedelta = timedelta(seconds=10)
    """The time between SIGTERM and SIGKILL, in which a process can end by itself."""
    extra_environment: ExtraEnvironment = nothing_more
    on_request: RequestObserver = ignore_request


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A backend that is ready, with its optional parts."""

    backend: Backend
    spool: Spool
    """Holds the logs of stopped groups until they are in storage."""
    preflight: Preflight | None = None
    inventory: Inventory | None = None
    """None: the backend does not know machines."""
    access: RankAccess | None = None
    """None: the backend cannot run commands where a rank runs."""
    on_save: JobObserver = ignore_job
    """Called with each stored change of a job, so that the backend can show the change in the engine."""
    on_waiting: WaitingObserver | None = None
    """Called with queued jobs that have a reservation and whose reason for waiting has changed, to show the
    reason in the engine.
    """
    silent_seconds: Callable[[], float | None] = lambda: None
    """Returns the seconds since the engine's last message. None: there was no message yet, or engines of this
    kind may be silent for longer than a minute.
    """


class BackendPlugin(Protocol):
    """A kind of backend: its settings, its part in admission, and the function that opens it.

    Plugins inherit from this class. Members that a plugin may leave out have a default here. Later versions
    add only members that have a default.
    """

    settings_model: ClassVar[type[Config]]
    """The pydantic model of the backend's table of settings.

    Each setting needs a default, because another backend may be the selected one.
    """
    recipe_model: ClassVar[type[Config] | None] = None
    """The pydantic model of the table algorithms.NAME.BACKEND. None: the backend can run any algorithm."""
    role_model: ClassVar[type[Config] | None] = None
    """The pydantic model of the table algorithms.NAME.roles.ROLE.BACKEND. None: roles have no options."""
    fetches_programs: ClassVar[bool] = False
    """Whether instances fetch uploaded files from `reports.address` themselves, by the call FetchProgram."""

    def __init__(self, settings: Any) -> None: ...

    @property
    def limits(self) -> RequestLimits | None:
        """Limits of the options in requests. None: requests cannot set options."""
        return None

    @property
    def flavors(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of machines by flavor, for each flavor whose machines the settings describe.

        If `scheduling.flavors` has no capacity for a flavor, its capacity is that of its machines.
        """
        return {}

    def check_delegate(
        self,
        delegate: str | None,
        priorities: Mapping[str, int],  # noqa: ARG002
    ) -> None:
        """Raise ValueError if the settings do not allow the cluster's queue `delegate` to decide when jobs
        start.

        `delegate` is None if the service itself decides. `priorities` has the number of each class of
        `scheduling.priorities`, by its name. The error message begins with the name of a field.
        """
        if delegate is not None:
            raise ValueError(f"delegate: {quoted(delegate)} is not possible: this backend has no such queue")

    def resolve(self, algorithm: Algorithm, role: str, sent: InstanceOptions) -> InstanceSpec:
        """Return the InstanceSpec of the role: the algorithm's options, merged with the options of a request
        (`sent`).

        Raises ValueError if options contradict each other.
        """
        ...

    def resolve_program(
        self,
        command: tuple[str, ...],  # noqa: ARG002
        sent: InstanceOptions,  # noqa: ARG002
    ) -> InstanceSpec | None:
        """Return the InstanceSpec that runs the command in a copy of uploaded files: see Surroundings.trees.

        None: the backend cannot run uploaded programs. Raises ValueError if options contradict each other.
        """
        return None

    def check_environment(self, requirements: str, name: str) -> None:  # noqa: ARG002
        """Raise ValueError if programs cannot have this Python environment.

        It is given by a file of requirements, or by the `name` of a configured environment.
        """
        raise ValueError(
            "not allowed: this backend installs no packages and has no named environments; put the packages "
            "into the image"
        )

    def image_of_program(self, image: str, environment: str) -> str:  # noqa: ARG002
        """Return the image of a program that names an image or an environment.

        An empty result means that the image in the program's InstanceSpec is used. `environment` has passed
        `check_environment`. Raises ValueError if programs cannot have the image.
        """
        if image:
            raise ValueError(
                f"{quoted(image)} is not allowed: this backend runs programs without images; leave it out"
            )
        return ""

    def address_for_ranks(self, host: str, port: int) -> str | None:  # noqa: ARG002
        """Return the address at which ranks reach a server on this machine; None if they cannot reach it."""
        return None

    async def open(self, surroundings: Surroundings) -> Opened:
        """Connect, and return the backend. Raises BackendRefused if the engine does not accept calls."""
        ...


class BrokenPlugin(Exception):
    """An installed backend cannot be used, or none is installed. The message says why, and what to do."""


@cache
def installed() -> Mapping[str, type[BackendPlugin]]:
    """Return the backends of all installed packages by name.

    Raises BrokenPlugin if one of them cannot be used, or if none is installed.
    """
    points: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        if point.name in points:
            raise BrokenPlugin(
                f"{_origin(point)} and {_origin(points[point.name])} have the same name: uninstall one"
            )
        points[point.name] = point
    if not points:
        raise BrokenPlugin("no backends are installed: install training-service again")
    return {name: _loaded(point) for name, point in points.items()}


def _loaded(point: EntryPoint) -> type[BackendPlugin]:
    try:
        plugin: type[BackendPlugin] = point.load()
        plugin.settings_model()
        if BackendPlugin not in plugin.__mro__:
            raise TypeError(f"{plugin.__name__} does not inherit from {BackendPlugin.__name__}")
    except ValidationError as error:
        raise _broken(point, explain(error, plugin.settings_model)) from error
    except Exception as error:  # importing foreign code may raise any error
        raise _broken(point, f"{type(error).__name__}: {error}") from error
    return plugin


def _broken(point: EntryPoint, reason: str) -> BrokenPlugin:
    return BrokenPlugin(f"{_origin(point)} cannot be used: fix it or uninstall it ({reason})")


def _origin(point: EntryPoint) -> str:
    return f"backend {point.name} of package {point.dist.name if point.dist else point.value}"

"""Makes, from the settings, the parts of the service that identify callers and know their rights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from job_tracker.access.callers import Callers
from job_tracker.access.operations import Access
from job_tracker.access.projects import Projects
from job_tracker.domain.access import Project
from job_tracker.domain.audit import EventObserver
from job_tracker.store.base import Store
from training_service.auth.authenticator import Authenticator, NotingRefusals, Proofs
from training_service.auth.certificates import identity_of
from training_service.auth.live import Live, Unusable
from training_service.settings import Settings
from training_service.settings.projects import projects_of, read_projects
from training_service.settings.protection import is_open


@dataclass(frozen=True, slots=True)
class OpenedAccess:
    """The callers that may use the service, and their rights."""

    projects: Projects
    callers: Callers
    operations: Access
    authenticator: Authenticator
    note: EventObserver
    """Records an event, such as a denial."""


async def open_access(settings: Settings, store: Store, note: EventObserver) -> OpenedAccess:
    """Read the projects, and return the callers and their rights.

    `note` gets an event for each denial, and for each project that changes in the file of projects.

    Raises Unusable if the file of projects cannot be used, or if this file or the configuration declares a
    project that was also declared through the API.
    """
    projects = Projects(store, note=note)
    await projects.load()
    await projects.declare(_declared(settings, projects), f"auth.projects_file {settings.auth.projects_file}")
    callers = Callers(
        store, projects, operators=settings.auth.operators, failures=settings.limits.failed_tokens
    )
    await callers.refresh()
    proofs = Proofs(
        callers,
        identity_of if settings.server.tls.client_ca else None,
        is_open=is_open(settings),
    )
    return OpenedAccess(
        projects=projects,
        callers=callers,
        operations=Access(store, projects, callers, limits=settings.limits.of_tokens, note=note),
        authenticator=NotingRefusals(proofs, note),
        note=note,
    )


def _declared(settings: Settings, projects: Projects) -> Callable[[], Mapping[str, Project]]:
    """Return a function that returns the projects of the configuration and of the file of projects.

    The returned function reads the file again when it has changed. If the changed file cannot be used, the
    previous content stays in use. Raises Unusable as described for `open_access`.
    """
    configured = projects_of(settings.projects)
    for name in sorted(configured.keys() & set(projects.stored)):
        raise Unusable(
            f"projects.{name}: project {name} was declared through the API, too; remove it from the "
            f"configuration, start the service, and delete it with `trainctl project delete {name}`"
        )
    path = settings.auth.projects_file
    if path is None:
        return lambda: configured

    def read(path: Path = path) -> Mapping[str, Project]:
        try:
            return {**configured, **read_projects(path, configured, projects.stored)}
        except ValueError as error:
            raise Unusable(f"auth.projects_file: {error}") from None

    return Live("auth.projects_file", [path], read).get

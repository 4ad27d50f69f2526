"""Makes the parts of the service that handle uploaded programs, according to the settings."""

from collections.abc import Callable

from job_tracker.domain.audit import EventObserver, ignore_event
from job_tracker.domain.group import InstanceOptions
from job_tracker.domain.policies import ProjectLimits
from job_tracker.store.base import Store
from job_tracker.trees.operations import Programs
from job_tracker.trees.store import TreeStore
from job_tracker.trees.sweeping import TreeSweeper
from training_service.settings import Settings
from training_service.settings.protection import may_send_code


def open_trees(settings: Settings) -> TreeStore:
    """Return the store of the service's uploaded trees."""
    return TreeStore(
        settings.storage.data_dir.absolute() / "programs",
        settings.programs.limits,
        max_stored_bytes=settings.programs.max_stored_bytes,
    )


def open_programs(
    settings: Settings, limits_of: Callable[[str], ProjectLimits | None], note: EventObserver = ignore_event
) -> Programs:
    """Return the operations on uploaded programs."""
    return Programs(open_trees(settings), limits_of=limits_of, refusal=refusal_of(settings), note=note)


def refusal_of(settings: Settings) -> str:
    """Return why this service runs no uploaded programs; "" if it runs them."""
    if settings.plugin.resolve_program(("true",), InstanceOptions()) is None:
        return f"backend {settings.backend}, which this service uses, cannot run uploaded programs"
    if settings.plugin.fetches_programs and settings.reports.address is None:
        return (
            f"instances of backend {settings.backend} fetch uploaded programs from reports.address, which "
            "is not set"
        )
    wanted = settings.programs.enabled
    if wanted is None and not may_send_code(settings):
        return (
            "this service runs no uploaded programs, since callers need not prove who they are "
            "(programs.enabled)"
        )
    return "this service runs no uploaded programs (programs.enabled)" if wanted is False else ""


def tree_sweeper(settings: Settings, store: Store) -> TreeSweeper:
    """Return the sweeper, which removes unused trees."""
    return TreeSweeper(store, open_trees(settings), settings.programs.keep_unused)

"""The seams of pods and Redis."""

from pathlib import Path
from typing import Any

from job_tracker.backends.kubernetes.api_errors import ApiError, Unreachable, from_answer
from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.store.encoding import ENDING
from job_tracker.store.redis.connection import Connection
from job_tracker.store.redis.scripts import Script
from tests.crash.calls import (
    BROKEN,
    BUSY,
    CONFLICT,
    FAULTY,
    REFUSED,
    RESET,
    SILENT,
    TIMED_OUT,
    UNREADABLE,
    name_of_update,
    store_away,
    wrap_files,
)
from tests.crash.seams import Seam, Seams
from tests.crash.table import REDIS, REDIS_READS

_ENDING = 12
"""The place of the ending among the arguments of an update."""


def wrap_redis(seams: Seams, data: Path) -> None:
    """Wrap the store: its scripts. The service is not killed at reads and at renewals of the lease, which
    have no partial effect.
    """
    seams.wrap(
        Connection,
        "run",
        Seam("script", _change, refusals={REFUSED: store_away}, losses={SILENT: store_away}),
    )
    seams.wrap(Connection, "run", Seam("read", _other_script, kills=False, refusals={UNREADABLE: store_away}))
    seams.wrap(Connection, "evaluate", Seam("script", lambda connection, script, *arguments: script.name))
    wrap_files(seams, data, only="redis-*")


def _change(connection: Connection, script: Script, *arguments: str | int) -> str | None:
    if script.name in REDIS_READS or (script.name == "lead" and arguments[2] != ""):
        return None
    if script.name not in REDIS:
        raise AssertionError(f"the script {script.name} is not in the table of crash points (table.py)")
    if script.name != "update":
        return script.name
    # The arguments of an update: term, token, id, version, state, …; see update.lua.
    ending = str(arguments[_ENDING])
    return name_of_update(str(arguments[4]), ENDING.validate_json(ending) if ending else None)


def _other_script(connection: Connection, script: Script, *arguments: str | int) -> str | None:
    return None if _change(connection, script, *arguments) else script.name


def wrap_kubernetes(seams: Seams, data: Path) -> None:
    """Wrap the API server, and the files that hold logs of pods."""
    wrap_files(seams, data, only="logs*")
    refusals = {BUSY: _busy, FAULTY: _faulty, RESET: _reset}
    losses = {TIMED_OUT: _timed_out, BROKEN: _reset}
    seams.wrap(
        KubernetesClient,
        "_once",
        Seam("api", _other_request, refusals={**refusals, CONFLICT: _conflict}, losses=losses),
    )
    # No conflict here: for a deletion it would mean that the name belongs to another object.
    seams.wrap(KubernetesClient, "_once", Seam("api", _deletion, refusals=refusals, losses=losses))
    seams.wrap(
        KubernetesClient,
        "_stream",
        Seam("stream", lambda client, kind, path, *rest: f"{kind} {Path(path).name}", refusals=refusals),
    )


def _other_request(client: KubernetesClient, method: str, path: str, *rest: Any) -> str | None:
    return None if method == "DELETE" else f"{method} {_below_namespace(path)}"


def _deletion(client: KubernetesClient, method: str, path: str, *rest: Any) -> str | None:
    return f"{method} {_below_namespace(path)}" if method == "DELETE" else None


def _below_namespace(path: str) -> str:
    return path.partition("/namespaces/")[2].partition("/")[2]


def _conflict() -> ApiError:
    return from_answer(409, b'{"reason": "Conflict", "message": "injected"}')


def _busy() -> ApiError:
    return from_answer(429, b"injected", "1")


def _faulty() -> ApiError:
    return from_answer(500, b"injected")


def _timed_out() -> ApiError:
    return Unreachable(0, "Timeout", "the API server did not answer in time (injected)")


def _reset() -> ApiError:
    return Unreachable(0, "NoConnection", "connection reset (injected)")

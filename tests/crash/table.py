"""The table of crash points: every change that the service makes in its store, and the kills around it."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import job_tracker.store.sqlite
from job_tracker.store.redis import scripts
from job_tracker.store.redis.scripts import Script

SCENARIO: Final = "scenario"
"""The change is part of the scenario, so the service is killed before and after it."""

_ONE_STEP: Final = "a single step, which nothing follows: tests/contract"

SQLITE: Final[Mapping[str, str]] = {
    "submit": SCENARIO,
    "update": SCENARIO,
    "record_reports": SCENARIO,
    "keep_scheduling_notes": SCENARIO,
    "put_declaration": SCENARIO,
    "delete": SCENARIO,
    "lead": SCENARIO,
    "resign": SCENARIO,
    "add_events": SCENARIO,
    "delete_events": SCENARIO,
    "forget_remains": "the sweep repeats it: tests/integration/tracker",
    "annotate": _ONE_STEP,
    "skip_ids": "training-service restore: tests/integration/sqlite",
    "remove_declaration": _ONE_STEP,
    "add_token": _ONE_STEP,
    "revoke_token": _ONE_STEP,
    "touch_tokens": _ONE_STEP,
    "put_project": _ONE_STEP,
    "delete_project": _ONE_STEP,
    "rotate_report_key": _ONE_STEP,
    "remove_report_key": _ONE_STEP,
    "purge_report_keys": "the tracker repeats it: tests/contract",
}
"""The operations that the writer of SQLite commits, by the name of the method."""

REDIS: Final[Mapping[str, str]] = {
    "submit": SCENARIO,
    "update": SCENARIO,
    "report": SCENARIO,
    "notes_keep": SCENARIO,
    "declaration_put": SCENARIO,
    "delete": SCENARIO,
    "lead": SCENARIO,
    "resign": SCENARIO,
    "audit_add": SCENARIO,
    "audit_delete": SCENARIO,
    "open": SCENARIO,
    "forget_remains": SQLITE["forget_remains"],
    "annotate": _ONE_STEP,
    "skip_ids": SQLITE["skip_ids"],
    "declaration_remove": _ONE_STEP,
    "token_add": _ONE_STEP,
    "token_revoke": _ONE_STEP,
    "token_touch": _ONE_STEP,
    "project_put": _ONE_STEP,
    "project_delete": _ONE_STEP,
    "report_key_rotate": _ONE_STEP,
    "report_key_remove": _ONE_STEP,
    "report_key_purge": SQLITE["purge_report_keys"],
}
"""The scripts that change something in Redis."""

REDIS_READS: Final = frozenset(
    {
        *("find_submitted", "get", "metrics", "artifacts", "head", "position", "queues", "notes", "note"),
        *("live", "tallies", "project_tallies", "list", "due", "old", "remains", "access_version"),
        *("token_get", "token_list", "projects", "declarations_version", "declarations"),
        *("audit_list", "audit_after", "report_keys", "metric_names"),
    }
)
"""The scripts that only read: a kill beside them changes nothing, so they get errors only."""

ALWAYS: Final = frozenset(
    {
        *("delete", "update to launching", "update to preempted", "update to resized"),
        *("keep_scheduling_notes", "notes_keep", "read scheduling_notes", "notes"),
    }
)
"""Calls whose points CI tries in each run. Of other calls, CI tries a sample."""


def sqlite_writes() -> Iterator[str]:
    """Yield the methods of the store that pass an operation to its writer, found in its source."""
    for file in Path(job_tracker.store.sqlite.__file__).parent.glob("*.py"):
        for method in ast.walk(ast.parse(file.read_text())):
            if isinstance(method, ast.AsyncFunctionDef) and any(map(_is_write, ast.walk(method))):
                yield method.name


def redis_scripts() -> Iterator[str]:
    """Yield the names of all scripts."""
    return (each.name for each in vars(scripts).values() if isinstance(each, Script))


def _is_write(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "run"
        and isinstance(node.func.value, ast.Attribute)
        and node.func.value.attr.endswith("writer")
    )

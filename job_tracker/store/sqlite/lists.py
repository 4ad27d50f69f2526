"""Finds the ids of the jobs that match a filter, without reading many rows of other projects or callers.

A list within projects merges one ordered range of an index for each project and state. So without further
conditions, it reads about as many entries as it returns, however many jobs there are in other projects or
states. A list by tag merges the entries of the tag in each project in the same way. SQLite merges the parts
of a compound SELECT in the order of its ORDER BY clause (sqlite.org/optoverview.html).
"""

import heapq
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain, islice, product
from typing import Any, Protocol

from job_tracker.domain.job import JobState
from job_tracker.store.jobs import CLOCK_SLACK, JobFilter, moved

_MOST_RANGES = 140  # in one statement; SQLite allows 500

Values = Sequence[Any]


class Read(Protocol):
    """Reads all rows of a query."""

    def __call__(self, query: str, /, *values: Any) -> list[sqlite3.Row]:
        """Return the rows. `values` are bound to the query."""
        ...


def newest(read: Read, where: JobFilter, limit: int, before: int | None) -> Iterator[int]:
    """Yield the ids of at most `limit` matching jobs below `before`, newest first."""
    if where.projects is not None and not where.projects:
        return iter(())
    conditions, values = _conditions(read, where, before)
    if where.tags:
        return islice(_tagged(read, where, conditions, values, limit), limit)
    if where.projects is not None and not where.submitted_by and not _are_most(read, where):
        ranges = list(product(sorted(where.projects), sorted(where.states or JobState)))
        select = _select("jobs INDEXED BY jobs_by_project", ["project = ?", "state = ?", *conditions])
        return islice(_merged(read, select, ranges, values, limit), limit)
    if where.projects is not None:
        conditions.append(f"+project IN ({_marks(where.projects)})")  # the + keeps SQLite from using an index
        values.extend(sorted(where.projects))
    if where.states:
        conditions.append(f"state IN ({_marks(where.states)})")
        values.extend(sorted(where.states))
    source = "jobs INDEXED BY jobs_by_submitter" if where.submitted_by else "jobs"
    return _ids(read, [_select(source, conditions)], [*values, limit])


def _tagged(
    read: Read, where: JobFilter, conditions: Sequence[str], values: Values, limit: int
) -> Iterator[int]:
    """Yield the ids of the jobs that have all tags of the filter, newest first.

    The ids of the jobs with the first tag are read from ranges of the index, and merged. For each of these
    jobs, the other tags are looked up.
    """
    first, *others = sorted(where.tags)
    everywhere = "SELECT DISTINCT project FROM project_tallies"
    projects = [row[0] for row in read(everywhere)] if where.projects is None else sorted(where.projects)
    conditions = [each.replace("id <", "job_id <").replace("id >=", "job_id >=") for each in conditions]
    values = list(values)
    if where.states:
        conditions.append(f"state IN ({_marks(where.states)})")
        values.extend(sorted(where.states))
    for tag in others:
        conditions.append(
            "EXISTS (SELECT 1 FROM job_tags other"
            " WHERE (other.tag, other.project, other.job_id) = (?, jobs.project, jobs.id))"
        )
        values.append(tag)
    # The CROSS JOIN makes SQLite read the tags first.
    select = _select(
        "job_tags CROSS JOIN jobs ON jobs.id = job_id",
        ["job_tags.tag = ?", "job_tags.project = ?", *conditions],
        "job_id AS id",
    )
    return _merged(read, select, [(first, project) for project in projects], values, limit)


def _merged(
    read: Read, select: str, ranges: Sequence[tuple[str, str]], values: Values, limit: int
) -> Iterator[int]:
    """Yield the ids in the ranges, newest first.

    `select` reads one range. The values that define the range are bound first, and `values` after them.
    """
    found = []
    for start in range(0, len(ranges), _MOST_RANGES):
        some = ranges[start : start + _MOST_RANGES]
        bound = chain.from_iterable((*each, *values) for each in some)
        found.append(_ids(read, [select] * len(some), [*bound, limit]))
    return heapq.merge(*found, reverse=True)


def _first_at(read: Read, moment: float) -> int:
    """Return the lowest id of the jobs that were submitted at this time or later.

    If there are no such jobs, return the id after the last job. The times are assumed to grow with the ids.
    """
    # There are two subqueries, since SQLite uses the index for min() or max() only if a query computes no
    # other value.
    [[low, last]] = read("SELECT (SELECT min(id) FROM jobs), (SELECT max(id) FROM jobs)")
    if last is None:
        return 1
    high: int = last + 1
    while low < high:
        middle = (low + high) // 2
        [[found, at]] = read("SELECT id, submitted_at FROM jobs WHERE id >= ? ORDER BY id LIMIT 1", middle)
        if at < moment:
            low = found + 1
        else:
            high = middle
    return int(low)


def _conditions(read: Read, where: JobFilter, before: int | None) -> tuple[list[str], list[Any]]:
    """Return the SQL conditions of the filter, and the values for them.

    The conditions for projects, states and tags are not included.
    """
    conditions: list[str] = []
    values: list[Any] = []
    if where.algorithm:
        conditions.append("algorithm = ?")
        values.append(where.algorithm)
    if where.name_prefix:
        conditions.append("name >= ? AND name < ?")
        values.extend((where.name_prefix, where.name_prefix + "\U0010ffff"))
    if where.submitted_by:
        conditions.append("submitted_by = ? AND submitted_by <> ''")  # the index has only jobs with a caller
        values.append(where.submitted_by)
    if before is not None:
        conditions.append("id < ?")
        values.append(before)
    if where.since is not None:
        conditions.append("submitted_at >= ?")
        values.append(where.since.timestamp())
        if earliest := moved(where.since, -CLOCK_SLACK):
            conditions.append("id >= ?")
            values.append(_first_at(read, earliest.timestamp()))
    if where.until is not None:
        conditions.append("submitted_at < ?")
        values.append(where.until.timestamp())
        if latest := moved(where.until, CLOCK_SLACK):
            conditions.append("id < ?")
            values.append(_first_at(read, latest.timestamp()))
    return conditions, values


def _are_most(read: Read, where: JobFilter) -> bool:
    """Return whether the filter has an algorithm or a name prefix, and its projects have most of the jobs.

    If so, the index by algorithm or by name is better than the index by project: most of the jobs with this
    algorithm or name are probably in these projects.
    """
    if not where.projects or not (where.algorithm or where.name_prefix):
        return False
    total: int
    [[total]] = read("SELECT coalesce(sum(jobs), 0) FROM tallies")
    counts = "SELECT coalesce(sum(jobs), 0) FROM project_tallies WHERE project = ?"
    wanted: int = sum(read(counts, project)[0][0] for project in where.projects)
    return 2 * wanted > total


def _marks(values: frozenset[Any]) -> str:
    return ", ".join("?" * len(values))


def _select(source: str, conditions: Sequence[str], column: str = "id") -> str:
    # The conditions are constants; every value is bound.
    clause = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {column} FROM {source}{clause}"  # noqa: S608


def _ids(read: Read, selects: Sequence[str], values: Values) -> Iterator[int]:
    found = read(f"{' UNION ALL '.join(selects)} ORDER BY id DESC LIMIT ?", *values)
    return iter([row[0] for row in found])

"""Lists read ordered ranges of indexes: no table scan, no sort, however many projects there are."""

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from job_tracker.domain.job import JobState
from job_tracker.store.jobs import JobFilter
from job_tracker.store.sqlite import lists
from job_tracker.store.sqlite.migrations import MIGRATIONS

TEN = frozenset(f"p{number}" for number in range(10))
QUEUED = frozenset({JobState.QUEUED})


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    """Return a database with 2,000 jobs: every tenth in project p0, the others in p1."""
    connection = sqlite3.connect(":memory:")
    for script in MIGRATIONS:
        connection.executescript(script)
    connection.executemany(
        "INSERT INTO jobs (id, version, state, name, algorithm, instances, attempt, submitted_at, spec,"
        " ranks, project, submitted_by) VALUES (?, 1, ?, 'n', 'a', 1, 0, 0, '{}', '[]', ?, ?)",
        [
            (
                number,
                "failed" if number % 4 else "queued",
                "p1" if number % 10 else "p0",
                ("ada", "bob")[number % 2],
            )
            for number in range(1, 2001)
        ],
    )
    yield connection
    connection.close()


class Reading:
    """Reads queries, and keeps their plans."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.plans: list[str] = []

    def __call__(self, query: str, /, *values: Any) -> list[Any]:
        plan = self._db.execute(f"EXPLAIN QUERY PLAN {query}", values).fetchall()
        self.plans += [row[3] for row in plan]
        return self._db.execute(query, values).fetchall()


@pytest.mark.parametrize(
    "where",
    [
        JobFilter(projects=frozenset({"p0"})),
        JobFilter(projects=frozenset({"p0"}), states=QUEUED),
        JobFilter(projects=frozenset({"p0"}), algorithm="a"),
        JobFilter(projects=frozenset({"p0"}), name_prefix="n"),
        JobFilter(projects=frozenset({"p0"}), submitted_by="ada"),
        JobFilter(projects=TEN),
        JobFilter(projects=TEN, states=QUEUED, submitted_by="bob"),
        JobFilter(submitted_by="ada"),
    ],
    ids=[
        "a project",
        "its queue",
        "algorithm",
        "name",
        "submitter",
        "ten",
        "all filters",
        "submitter of all",
    ],
)
def test_no_list_scans_the_jobs_or_sorts_them(db: sqlite3.Connection, where: JobFilter) -> None:
    reading = Reading(db)
    found = list(lists.newest(reading, where, 5, 1990))
    assert found == sorted(found, reverse=True)
    assert [step for step in reading.plans if step.startswith("SCAN jobs") or "TEMP B-TREE" in step] == []
    used = "jobs_by_submitter" if where.submitted_by else "jobs_by_project"
    assert any(f"SEARCH jobs USING COVERING INDEX {used}" in step for step in reading.plans) or any(
        f"SEARCH jobs USING INDEX {used}" in step for step in reading.plans
    )


@pytest.mark.parametrize("projects", [None, frozenset({"p0"})], ids=["everywhere", "a project"])
def test_a_list_by_tags_reads_ranges_of_the_tag(
    db: sqlite3.Connection, projects: frozenset[str] | None
) -> None:
    db.execute("""UPDATE jobs SET tags = '["a","b"]' WHERE id % 3 = 0""")
    reading = Reading(db)
    where = JobFilter(projects=projects, tags=frozenset({"a", "b"}), states=QUEUED)
    wanted = [n for n in range(1989, 0, -1) if n % 12 == 0 and (projects is None or n % 10 == 0)][:5]
    assert list(lists.newest(reading, where, 5, 1990)) == wanted
    scans = [step for step in reading.plans if step.startswith("SCAN") or "TEMP B-TREE" in step]
    assert [step for step in scans if "project_tallies" not in step] == []
    assert any(
        "SEARCH job_tags USING PRIMARY KEY (tag=? AND project=? AND job_id<?)" in step
        for step in reading.plans
    )


def test_a_list_by_time_reads_few_jobs(db: sqlite3.Connection) -> None:
    db.execute("UPDATE jobs SET submitted_at = id * 3600.0")
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    db.set_progress_handler(step, 1)
    for projects in (None, frozenset({"p0", "p1"})):
        where = JobFilter(
            projects=projects,
            since=datetime.fromtimestamp(1000 * 3600, UTC),
            until=datetime.fromtimestamp(1003 * 3600, UTC),
        )
        found = list(lists.newest(lambda query, *of: db.execute(query, of).fetchall(), where, 5, None))
        assert found == [1002, 1001, 1000]
    assert steps < 3000


def test_a_project_with_most_jobs_is_read_by_the_other_index(db: sqlite3.Connection) -> None:
    reading = Reading(db)
    where = JobFilter(projects=frozenset({"p1"}), algorithm="a")
    assert list(lists.newest(reading, where, 3, None)) == [1999, 1998, 1997]
    assert any("jobs_by_algorithm" in step for step in reading.plans)


def test_hundreds_of_projects_need_several_statements(db: sqlite3.Connection) -> None:
    reading = Reading(db)
    where = JobFilter(projects=frozenset({*TEN, *(f"q{number}" for number in range(300))}))
    assert list(lists.newest(reading, where, 3, 1992)) == [1991, 1990, 1989]


def test_the_number_of_entries_that_are_read_does_not_grow(db: sqlite3.Connection) -> None:
    """SQLite counts its steps; a list of the small project takes few, among many jobs of the other."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    db.set_progress_handler(step, 1)
    where = JobFilter(projects=frozenset({"p0"}))
    assert (
        len(list(lists.newest(lambda query, *values: db.execute(query, values).fetchall(), where, 5, None)))
        == 5
    )
    assert steps < 1000

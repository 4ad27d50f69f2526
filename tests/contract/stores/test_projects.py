"""The contract of stores: projects, and the callers that submit jobs."""

import asyncio
from typing import Any

import pytest

from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import QueueFull, RequestKeyConflict
from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.store.base import Store
from job_tracker.store.jobs import JobFilter, RequestKey
from tests.support.jobs import NOON, spec
from tests.support.stores import Reopen

MANY = 10_000


async def submit(store: Store, project: str = "default", by: str = "ada", **changes: object) -> Job:
    wanted = spec(project=project, submitted_by=by, **changes)  # type: ignore[arg-type]
    return await store.submit(wanted, NOON, None, MANY)


async def end(store: Store, job: Job) -> Job:
    return await store.update(job.ended(Ending(JobState.CANCELLED, NOON), NOON))


async def ids(
    store: Store, *projects: str, limit: int = 100, before: int | None = None, **where: Any
) -> list[int]:
    """Return the ids of the jobs of these projects; without projects, of all jobs."""
    states = frozenset(JobState(state) for state in where.pop("states", "").split())
    chosen = JobFilter(states=states, projects=frozenset(projects) if projects else None, **where)
    return [job.id for job in (await store.list_jobs(chosen, limit=limit, before=before)).jobs]


async def test_project_and_submitter_are_kept(store: Store, reopen: Reopen) -> None:
    job = await submit(store, "vision", "ada")
    kept = await (await reopen()).get(job.id)
    assert (kept.spec.project, kept.spec.submitted_by) == ("vision", "ada")


async def test_lists_are_filtered_by_project_and_submitter(store: Store) -> None:
    for project, by in [("a", "ada"), ("b", "ada"), ("a", "bob"), ("default", "bob"), ("a", "")]:
        await submit(store, project, by)
    assert await ids(store, "a") == [5, 3, 1]
    assert await ids(store, "b", "default") == [4, 2]
    assert await ids(store, submitted_by="ada") == [2, 1]
    assert await ids(store, "a", submitted_by="ada") == [1]
    assert await ids(store, "a", "b", submitted_by="ada") == [2, 1]
    assert await ids(store, "none") == await ids(store, submitted_by="none") == []
    assert await ids(store) == [5, 4, 3, 2, 1]


async def test_no_project_is_not_all_projects(store: Store) -> None:
    await submit(store, "a")
    for where in (JobFilter(projects=frozenset()), JobFilter(projects=frozenset(), submitted_by="ada")):
        assert (await store.list_jobs(where, limit=10)).jobs == []


async def test_filters_of_a_list_hold_together(store: Store) -> None:
    for number in range(12):
        project, by = ("a", "b")[number % 2], ("ada", "bob", "eve")[number % 3]
        job = await submit(store, project, by, name=f"n{number % 4}", algorithm=("x", "y")[number // 6])
        if number % 5 == 0:
            await end(store, job)  # 1, 6 and 11
    assert await ids(store, "a") == [11, 9, 7, 5, 3, 1]
    assert await ids(store, "a", states="queued") == [9, 7, 5, 3]
    assert await ids(store, "a", states="cancelled queued") == [11, 9, 7, 5, 3, 1]
    assert await ids(store, "a", algorithm="x") == [5, 3, 1]
    assert await ids(store, "a", name_prefix="n2") == [11, 7, 3]
    assert await ids(store, "a", submitted_by="bob") == [11, 5]
    assert await ids(store, "a", states="queued", submitted_by="bob", algorithm="x", name_prefix="n0") == [5]
    assert await ids(store, "a", "b", states="cancelled") == [11, 6, 1]
    assert await ids(store, "a", limit=2, before=9) == [7, 5]
    assert await ids(store, "a", submitted_by="bob", before=11) == [5]


async def test_pages_within_projects_have_every_job_once(store: Store) -> None:
    projects = [f"p{number}" for number in range(30)]
    jobs = [await submit(store, projects[number % 30], ("ada", "bob")[number % 2]) for number in range(120)]
    for job in jobs[::3]:
        await end(store, job)
    for chosen, by in ((projects[:25], ""), (projects, "bob"), (projects[:3], "")):
        specs = [(job.id, job.spec) for job in reversed(jobs)]
        wanted = [n for n, each in specs if each.project in chosen and by in ("", each.submitted_by)]
        where = {"submitted_by": by}
        found: list[int] = []
        while page := await ids(store, *chosen, limit=7, before=found[-1] if found else None, **where):
            found += page
        assert found == wanted


async def test_a_list_of_a_small_project_finds_it_below_many_other_jobs(store: Store) -> None:
    first = await submit(store, "small")
    await asyncio.gather(*(submit(store, "large") for _ in range(2500)))
    assert await ids(store, "small") == [first.id]
    assert len(await ids(store, "large", limit=2400)) == 2400
    assert await ids(store, "small", "large", limit=2600) == list(range(2501, 0, -1))


async def test_counts_of_a_project_follow_every_move(store: Store, reopen: Reopen) -> None:
    one, two, other = [await submit(store, project) for project in ("a", "a", "b")]
    running = await store.update((await store.update(one.admitted(NOON))).running(NOON))
    await store.update(running.decided(Ending(JobState.FAILED, NOON)))
    await end(store, two)
    await end(store, other)
    nothing = dict.fromkeys(JobState, 0)
    expected = {
        "a": {**nothing, JobState.RUNNING: 1, JobState.CANCELLED: 1},
        "b": {**nothing, JobState.CANCELLED: 1},
        "c": nothing,
    }
    assert await store.tallies_of(["a", "b", "c"]) == expected
    store = await reopen()
    assert await store.tallies_of(["a", "b", "c"]) == expected
    await store.delete([two.id])
    assert (await store.tallies_of(["a"]))["a"][JobState.CANCELLED] == 0
    assert await ids(store, "a") == [one.id]
    assert await store.tallies_of([]) == {}


async def test_each_project_has_its_own_request_keys(store: Store, reopen: Reopen) -> None:
    async def repeat(project: str, digest: bytes = b"digest") -> int:
        key = RequestKey("monday", digest, project)
        return (await store.submit(spec(project=project), NOON, key, MANY)).id

    assert [await repeat(project) for project in ("default", "a", "b", "a", "default")] == [1, 2, 3, 2, 1]
    store = await reopen()
    found = [await store.find_submitted(RequestKey("monday", b"digest", each)) for each in ("a", "b", "c")]
    assert [job and job.id for job in found] == [2, 3, None]
    with pytest.raises(RequestKeyConflict, match="job 3"):
        await repeat("b", b"other")
    await end(store, await store.get(2))
    await store.delete([2])
    assert [await repeat(project) for project in ("a", "b", "default")] == [4, 3, 1]


async def test_queued_jobs_of_a_project_are_limited(store: Store) -> None:
    async def one_more(project: str, most: int | None, most_of_all: int = MANY) -> Job:
        return await store.submit(spec(project=project), NOON, None, most_of_all, most)

    first = await one_more("a", 2)
    await one_more("a", 2)
    with pytest.raises(QueueFull) as caught:
        await one_more("a", 2)
    assert str(caught.value) == (
        "2 jobs of project a are queued, which is the limit (projects.a.max_queued); "
        "try again when some of them have started"
    )
    await one_more("b", 2)
    await one_more("a", None)
    with pytest.raises(QueueFull, match=r"^4 jobs are queued, .*scheduling\.max_queued"):
        await one_more("b", 2, most_of_all=4)
    await store.update(first.admitted(NOON))
    await one_more("a", 3)
    assert (await store.tallies_of(["a"]))["a"][JobState.QUEUED] == 3


async def test_queued_jobs_of_a_caller_are_limited_in_all_projects_together(store: Store) -> None:
    async def one_more(caller: str, project: str = "a", most: int | None = 2) -> Job:
        wanted = spec(project=project, submitted_by=caller)
        return await store.submit(wanted, NOON, None, MANY, MANY, max_queued_of_caller=most)

    async def refused() -> None:
        with pytest.raises(QueueFull) as caught:
            await one_more("ada", "b")
        assert str(caught.value) == (
            "2 jobs of caller 'ada' are queued, which is the limit (scheduling.max_queued_of_caller); "
            "try again when some of them have started"
        )

    first = await one_more("ada")
    await one_more("ada", "b")
    await refused()
    await one_more("eve")
    admitted = await store.update(first.admitted(NOON))
    third = await one_more("ada")
    failure = Diagnosis(category=Category.NODE_LOST, summary="A node was lost.", resolution="Wait.")
    ending = Ending(JobState.BACKOFF, NOON, failure)
    backing_off = await store.update(admitted.ended(ending, NOON))
    await refused()
    await store.update(third.ended(Ending(JobState.CANCELLED, NOON), NOON))
    await store.update(backing_off.queued_again(NOON))
    await refused()
    assert (await one_more("ada", most=None)).spec.submitted_by == "ada"
    assert (await one_more("", most=1)).id < (await one_more("", most=1)).id


async def test_concurrent_submissions_do_not_pass_the_limit_of_their_project(store: Store) -> None:
    async def try_one() -> bool:
        try:
            await store.submit(spec(project="a"), NOON, None, MANY, 5)
        except QueueFull:
            return False
        return True

    assert sum(await asyncio.gather(*(try_one() for _ in range(40)))) == 5


async def test_a_repeated_request_is_answered_although_the_project_is_full(store: Store) -> None:
    key = RequestKey("monday", b"digest", "a")
    job = await store.submit(spec(project="a"), NOON, key, MANY, 1)
    assert await store.submit(spec(project="a"), NOON, key, MANY, 1) == job

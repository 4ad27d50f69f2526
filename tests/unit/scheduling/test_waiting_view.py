"""The view of callers on jobs that are stopped for others, and on those for which they are stopped."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from job_tracker.domain.caller import Role
from job_tracker.domain.job import Ending, Job, JobState, Preemption, PreemptionReason
from job_tracker.domain.policies import Elastic
from job_tracker.scheduling.mirror import Mirror
from job_tracker.scheduling.model import Allocation, Flavor, Reason
from job_tracker.scheduling.queue_view import QueueFilter, QueuePage, page_of
from job_tracker.scheduling.recipes import PreemptionRecipe, QueueRecipe
from job_tracker.scheduling.remedies import Cure
from job_tracker.scheduling.tree import Pool, Tree, tree_of
from job_tracker.scheduling.waiting_view import Explanation, explain
from job_tracker.store.sqlite import SqliteStore
from tests.support.callers import caller_with
from tests.support.jobs import NOON, spec
from tests.support.statuses import drawn
from training_service.api.convert.waiting import explanation_of, queue_of
from training_service.client.cli.render import queue as queue_text
from training_service.client.cli.render import waiting as waiting_text

FLAVOR = Flavor(name="default", capacity={"instances": 1})
TREE = tree_of(
    Pool((FLAVOR,)),
    {"q": QueueRecipe(projects=("vision", "speech"), preemption=PreemptionRecipe(by_priority=True))},
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    yield store
    await store.close()


async def submitted(store: SqliteStore, project: str, priority: int = 0) -> Job:
    wanted = spec(project=project, queue="q", priority=priority, instances=1)
    return await store.submit(wanted, NOON, None, 100)


async def stopping(store: SqliteStore, victim: Job, other: Job) -> Job:
    """Return the victim, which runs and is being stopped for the other job."""
    running = await store.update((await store.update(victim.admitted(NOON))).running(NOON))
    why = Preemption(by_job=other.id, why=PreemptionReason.PRIORITY, by_project=other.spec.project)
    return await store.update(running.preempted(why, NOON))


async def explained(store: SqliteStore, job: Job, role: Role = Role.VIEWER, tree: Tree = TREE) -> Explanation:
    mirror = Mirror(store, lambda: tree, clock=lambda: NOON)
    try:
        return await explain(mirror, caller_with(role), await store.get(job.id), 0)
    finally:
        await mirror.close()


async def page(store: SqliteStore, role: Role = Role.VIEWER) -> QueuePage:
    mirror = Mirror(store, lambda: TREE, clock=lambda: NOON)
    try:
        return await mirror.ask(lambda seen: page_of(seen, caller_with(role), QueueFilter(), 10, None))
    finally:
        await mirror.close()


async def test_a_job_that_others_are_stopped_for_says_which(store: SqliteStore) -> None:
    victim, other = await submitted(store, "vision"), await submitted(store, "vision", priority=1)
    await stopping(store, victim, other)
    found = await explained(store, other)
    assert found.reasons[0] is Reason.PREEMPTING
    assert [each.job_id for each in found.stopping] == [victim.id]
    assert found.remedy is not None
    assert found.remedy.cure is Cure.WAIT
    assert found.remedy.text == "Wait until the job that is being stopped for it has ended."
    assert found.remedy.is_verified
    assert f"stopping: job {victim.id} " in waiting_text.line(explanation_of(found))
    seen = await page(store)
    assert [(each.gang.job_id, each.stopping) for each in seen.jobs] == [(other.id, [victim.id])]
    assert f"job {other.id}: being stopped for it: {victim.id}" in drawn(queue_text.tables(queue_of(seen)))


async def test_what_is_kept_for_a_job_that_becomes_larger_counts_as_its_own(store: SqliteStore) -> None:
    tree = tree_of(Pool((replace(FLAVOR, capacity={"instances": 4}),)), {"q": QueueRecipe()})
    grows = spec(project="vision", queue="q", instances=4, elastic=Elastic(min_instances=1))
    job = await store.submit(grows, NOON, None, 100)
    running = (await store.update(job.admitted(NOON, Allocation(trainers=1)))).running(NOON)
    larger = Preemption(by_job=0, why=PreemptionReason.GROW, trainers=4)
    running = await store.update((await store.update(running)).preempted(larger, NOON))
    other = await submitted(store, "vision")
    found = await explained(store, other, tree=tree)
    assert (found.reasons[0], [each.instances for each in found.holders]) == (Reason.CAPACITY, [4])
    said = waiting_text.line(explanation_of(await explained(store, running, tree=tree)))
    assert said.endswith("waits: no: it is being stopped. Made larger: more instances are free.")


async def test_jobs_of_other_projects_that_are_stopped_are_only_counted(store: SqliteStore) -> None:
    victim, other = await submitted(store, "speech"), await submitted(store, "vision", priority=1)
    await stopping(store, victim, other)
    found = await explained(store, other)
    assert (found.stopping, found.other_stopping) == ([], 1)
    assert [each.stopping for each in (await page(store)).jobs] == [[]]
    assert (await explained(store, other, Role.OPERATOR)).other_stopping == 0


@pytest.mark.parametrize(
    ("project", "who"), [("vision", "job 2"), ("speech", "another job")], ids=["own", "of another project"]
)
async def test_a_job_that_was_stopped_says_for_whom(store: SqliteStore, project: str, who: str) -> None:
    victim, other = await submitted(store, "vision"), await submitted(store, project, priority=1)
    job = await stopping(store, victim, other)
    assert job.ending is not None
    await store.update(job.ended(Ending(JobState.QUEUED, NOON, preemption=job.ending.preemption), NOON))
    await store.update(other.admitted(NOON))
    message = explanation_of(await explained(store, victim))
    assert message.stopped == f"Preempted: {who} has a higher priority."
    assert f"stopped: {message.stopped}" in waiting_text.line(message)
    seen = queue_of(await page(store))
    assert [each.stopped for each in seen.jobs] == [message.stopped]
    assert f"job {victim.id}: {message.stopped}" in drawn(queue_text.tables(seen))

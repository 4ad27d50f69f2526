"""Every operation is tried with every role, in the caller's project and in another, on every store."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from job_tracker.admission.admission import Admission, JobRequest
from job_tracker.backends.fake import FakeBackend, FakeWorld
from job_tracker.catalog import Dataset, FixedCatalog
from job_tracker.domain.audit import AuditEvent, Outcome
from job_tracker.domain.caller import Caller, Role
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import Forbidden, JobNotFound, TrackerError, UnknownReference
from job_tracker.domain.job import JobState
from job_tracker.domain.policies import ProjectLimits
from job_tracker.domain.rights import RIGHTS
from job_tracker.domain.tags import Annotation
from job_tracker.files.artifacts import ModelFiles
from job_tracker.jobs import Jobs
from job_tracker.logs.archive import LogArchive
from job_tracker.logs.reader import LogReader, LogRequest
from job_tracker.scheduling.queue_view import QueueFilter
from job_tracker.store.audit import AuditFilter
from job_tracker.store.base import Store
from job_tracker.store.jobs import JobFilter
from tests.support.callers import caller_with
from tests.support.catalog import algorithm_of, fake_resolver, wait_for_datasets
from tests.support.jobs import NOON, spec

PROJECTS = ("vision", "speech")
REQUEST = JobRequest(algorithm="program", dataset_id="1", dataset_version="v1", parameters={})
UNKNOWN_JOB = 999
ROLES = [None, *Role]
CRASH = Diagnosis(category=Category.CRASHED, summary="It crashed.", resolution="Correct it.")


@pytest.fixture
def noted() -> list[AuditEvent]:
    """The audit events of denials and reads."""
    return []


@pytest.fixture
async def jobs(
    store: Store, storage: Path, noted: list[AuditEvent], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Jobs]:
    wait_for_datasets(monkeypatch)
    algorithms = {"program": algorithm_of()}
    admission = Admission(
        FixedCatalog(
            algorithms, {"1": Dataset(uri=f"{storage}/versionedDatasets/{{dataset_id}}/{{version}}")}
        ),
        fake_resolver(algorithms),
        capacity=4,
        max_processes=4,
        models_uri=f"{storage}/models",
        checkpoints_uri=f"{storage}/checkpoints",
        store_id="1a2b3c4d",
    )
    logs = LogReader(store, FakeBackend(FakeWorld()), LogArchive(f"{storage}/logs"))
    limits = dict.fromkeys(PROJECTS, ProjectLimits(max_queued=50))
    made = Jobs(
        store,
        logs,
        admission,
        ModelFiles(str(storage)),
        max_queued=1000,
        limits_of=limits.get,
        note=noted.append,
        changes_of=lambda _: pieces(b"+ a line\n"),
    )
    yield made
    await made.mirror.close()


async def pieces(*parts: bytes) -> AsyncGenerator[bytes, None]:
    for part in parts:
        yield part


async def ended_job(store: Store, storage: Path, project: str, by: str = "ada") -> int:
    """Return a job that has ended, with a model that has a file."""
    wanted = spec(project=project, submitted_by=by, model_root=f"{storage}/models/m")
    job = await store.submit(wanted, NOON, None, 1000)
    folder = Path(job.model_uri)
    folder.mkdir(parents=True)
    (folder / "model.pt").write_text("weights")
    running = await store.update((await store.update(job.admitted(NOON))).running(NOON))
    failed = await store.update(running.failed(CRASH, NOON))
    assert failed.ending is not None
    return (await store.update(failed.ended(failed.ending, NOON))).id


async def first_of(stream: Any) -> None:
    async with aclosing(stream) as items:
        await anext(items, None)


CALLS: dict[str, Callable[[Jobs, Caller, int], Any]] = {
    "submit": lambda jobs, caller, _: jobs.submit(caller, REQUEST),
    "get": lambda jobs, caller, job_id: jobs.get(caller, job_id),
    "list": lambda jobs, caller, _: jobs.list(
        caller, JobFilter(projects=frozenset({caller.default_project})), limit=5, before=None
    ),
    "cancel": lambda jobs, caller, job_id: jobs.cancel(caller, job_id),
    "annotate": lambda jobs, caller, job_id: jobs.annotate(caller, job_id, Annotation(note="seen")),
    "delete": lambda jobs, caller, job_id: jobs.delete(caller, job_id),
    "watch": lambda jobs, caller, job_id: first_of(jobs.watch(caller, job_id)),
    "logs": lambda jobs, caller, job_id: first_of(jobs.logs(caller, job_id, LogRequest())),
    "explain": lambda jobs, caller, job_id: jobs.explain(caller, job_id),
    "queue": lambda jobs, caller, _: jobs.queue(
        caller, QueueFilter(project=caller.default_project), limit=5, after=None
    ),
    "snapshot": lambda jobs, caller, _: jobs.snapshot(caller, caller.default_project),
    "metrics": lambda jobs, caller, job_id: jobs.metrics(caller, job_id, ()),
    "artifacts": lambda jobs, caller, job_id: jobs.artifacts(caller, job_id),
    "fetch": lambda jobs, caller, job_id: first_of(jobs.fetch(caller, job_id, "model.pt")),
    "changes": lambda jobs, caller, job_id: first_of(jobs.changes(caller, job_id)),
}
OF_ONE_JOB = sorted(set(CALLS) - {"submit", "list", "queue", "snapshot"})


def test_every_operation_is_tried() -> None:
    assert set(CALLS) == set(RIGHTS)


async def outcome(jobs: Jobs, operation: str, caller: Caller, job_id: int) -> TrackerError | None:
    """Return the error of the operation; None if it is carried out."""
    try:
        await CALLS[operation](jobs, caller, job_id)
    except TrackerError as error:
        return error
    return None


@pytest.mark.parametrize("by", ["ada", "bob"])
async def test_in_the_own_project_the_role_decides(jobs: Jobs, store: Store, storage: Path, by: str) -> None:
    job_id = await ended_job(store, storage, "vision", by)
    for operation, right in RIGHTS.items():
        least = right.for_others if by == "bob" and right.for_others else right.least
        for role in ROLES:
            # A separate job is deleted, because the other operations need their job.
            target = await ended_job(store, storage, "vision", by) if operation == "delete" else job_id
            error = await outcome(jobs, operation, caller_with(role), target)
            if role is not None and role >= least:
                assert error is None, (operation, role)
            elif role is None and operation in OF_ONE_JOB:
                assert isinstance(error, JobNotFound), (operation, role)
            else:
                assert isinstance(error, Forbidden), (operation, role)


@pytest.mark.parametrize("role", [role for role in ROLES if role is not Role.OPERATOR])
async def test_a_job_of_another_project_looks_like_one_that_never_was(
    jobs: Jobs, store: Store, storage: Path, role: Role | None
) -> None:
    job_id = await ended_job(store, storage, "speech", by="ada")
    caller = caller_with(role, "vision")
    for operation in OF_ONE_JOB:
        there = await outcome(jobs, operation, caller, job_id)
        nowhere = await outcome(jobs, operation, caller, UNKNOWN_JOB)
        assert type(there) is type(nowhere) is JobNotFound, operation
        assert str(there) == str(nowhere).replace(str(UNKNOWN_JOB), str(job_id)), operation


async def test_no_question_about_a_foreign_job_gets_another_answer(
    jobs: Jobs, store: Store, storage: Path
) -> None:
    """An error in a request is not reported to a caller who may not make the request."""
    job_id = await ended_job(store, storage, "speech")
    caller = caller_with(Role.ADMIN, "vision")
    for wanted in (LogRequest(rank=99), LogRequest(attempt=99), LogRequest(position="nonsense")):
        with pytest.raises(JobNotFound):
            await first_of(jobs.logs(caller, job_id, wanted))
    for change in (Annotation(add_tags=["not allowed"]), Annotation(note="x" * 9999)):
        with pytest.raises(JobNotFound):
            await jobs.annotate(caller, job_id, change)
    for name in ("../secret", "missing", ""):
        with pytest.raises(JobNotFound):
            await first_of(jobs.fetch(caller, job_id, name))


@pytest.mark.parametrize("role", [role for role in ROLES if role is not Role.OPERATOR])
async def test_another_project_is_refused_whether_it_exists_or_not(jobs: Jobs, role: Role | None) -> None:
    caller = caller_with(role, "vision")
    for operation in ("submit", "list", "queue", "snapshot"):
        there = await outcome(jobs, operation, caller.using("speech"), 0)
        nowhere = await outcome(jobs, operation, caller.using("no-such"), 0)
        assert type(there) is type(nowhere) is Forbidden
        assert str(there).replace("speech", "no-such") == str(nowhere)


async def listed(jobs: Jobs, caller: Caller, projects: Collection[str] | None = None) -> list[int]:
    where = JobFilter(projects=None if projects is None else frozenset(projects))
    return [view.job.id for view in (await jobs.list(caller, where, limit=10, before=None)).jobs]


async def test_a_list_of_all_projects_has_those_of_the_caller(jobs: Jobs, store: Store) -> None:
    for project in ("vision", "speech", "default", "vision"):
        await store.submit(spec(project=project), NOON, None, 100)
    assert await listed(jobs, caller_with(None)) == []
    assert await listed(jobs, caller_with(Role.VIEWER)) == [4, 1]
    both = replace(caller_with(None), roles={"vision": Role.ADMIN, "speech": Role.VIEWER})
    assert await listed(jobs, both) == [4, 2, 1]
    assert await listed(jobs, both, ["speech"]) == [2]
    with pytest.raises(Forbidden):
        await listed(jobs, both, ["speech", "default"])
    assert await listed(jobs, caller_with(Role.OPERATOR)) == [4, 3, 2, 1]


async def test_a_job_belongs_to_the_project_and_the_name_of_its_caller(jobs: Jobs, store: Store) -> None:
    job = await jobs.submit(caller_with(Role.SUBMITTER, "speech", name="eve"), REQUEST)
    assert (job.spec.project, job.spec.submitted_by) == ("speech", "eve")
    assert job.folder == f"speech/1a2b3c4d-{job.id}"
    assert (await store.tallies_of(["speech"]))["speech"][JobState.QUEUED] == 1


async def test_a_request_key_of_another_project_tells_nothing(jobs: Jobs) -> None:
    request = replace(REQUEST, request_key="monday")
    first = await jobs.submit(caller_with(Role.SUBMITTER, "speech"), request)
    other = await jobs.submit(caller_with(Role.SUBMITTER, "vision"), replace(request, name="another"))
    assert (first.id, other.id) == (1, 2)
    assert await jobs.submit(caller_with(Role.SUBMITTER, "speech"), request) == first


async def test_a_role_that_was_taken_away_does_not_get_the_job_of_a_repeated_request(jobs: Jobs) -> None:
    request = replace(REQUEST, request_key="monday")
    await jobs.submit(caller_with(Role.SUBMITTER), request)
    with pytest.raises(Forbidden):
        await jobs.submit(caller_with(Role.VIEWER), request)


async def test_only_projects_that_exist_take_jobs(jobs: Jobs) -> None:
    with pytest.raises(UnknownReference, match="no-such doesn't exist"):
        await jobs.submit(caller_with(Role.OPERATOR, "no-such"), REQUEST)


async def test_a_watch_ends_when_the_role_is_taken_away(
    jobs: Jobs, store: Store, noted: list[AuditEvent]
) -> None:
    job = await store.submit(spec(project="vision"), NOON, None, 100)

    async def without_roles(caller: Caller) -> Caller:
        return replace(caller, roles={})

    async with (
        aclosing(jobs.watch(caller_with(Role.VIEWER), job.id)) as ends,
        aclosing(jobs.watch(caller_with(Role.OPERATOR, name="op"), job.id)) as goes_on,
    ):
        assert (await anext(ends)).job == (await anext(goes_on)).job == job
        await jobs.streams.recheck(
            lambda caller: without_roles(caller) if caller.name == "ada" else _same(caller)
        )
        with pytest.raises(Forbidden, match="ada has no role there"):
            await anext(ends)
        [event] = noted
        assert (event.caller, event.action, event.outcome) == ("ada", "watch", Outcome.DENIED)
        assert (event.project, event.target) == ("vision", f"job {job.id}")
        await store.update(job.admitted(NOON))
        assert (await anext(goes_on)).job.state is JobState.LAUNCHING


async def _same(caller: Caller) -> Caller:
    return caller


CHANGING = {"submit", "cancel", "annotate", "delete"}
READ_SILENTLY = {"get", "list", "watch", "metrics", "explain", "queue", "snapshot"}
"""The other operations read logs or artifacts."""


async def test_every_denial_is_noted_once(
    jobs: Jobs, store: Store, storage: Path, noted: list[AuditEvent]
) -> None:
    job_id = await ended_job(store, storage, "vision", "bob")
    for operation in RIGHTS:
        for role in (None, Role.VIEWER):
            noted.clear()
            if await outcome(jobs, operation, caller_with(role), job_id) is None:
                continue
            [event] = noted
            assert (event.action, event.outcome, event.caller) == (operation, Outcome.DENIED, "ada")
            assert (event.project, event.target) == (
                "vision",
                f"job {job_id}" if operation in OF_ONE_JOB else "",
            )
    noted.clear()
    for operation in OF_ONE_JOB:
        assert isinstance(await outcome(jobs, operation, caller_with(None), UNKNOWN_JOB), JobNotFound)
    assert noted == [], "no denial is noted for a job that never existed"


async def test_every_change_has_a_row_and_every_read_of_logs_and_artifacts_is_noted(
    jobs: Jobs, store: Store, storage: Path, noted: list[AuditEvent]
) -> None:
    job_id = await ended_job(store, storage, "vision")
    caller = caller_with(Role.ADMIN)
    await jobs.submit(caller, REQUEST)
    for operation in RIGHTS:
        noted.clear()
        before = len(await store.events_after(0, 100))
        about = job_id if operation not in CHANGING else job_id + 1
        await CALLS[operation](jobs, caller, about)
        rows = (await store.events_after(0, 100))[before:]
        found = [(event.action, event.outcome, event.caller, event.project) for event in (*rows, *noted)]
        if operation in READ_SILENTLY:
            assert found == [], operation
        elif operation in CHANGING:
            assert found == [(operation, Outcome.DONE, "ada", "vision")], operation
            assert not noted
        else:
            assert found == [(operation, Outcome.READ, "ada", "vision")], operation
            assert noted[0].target == f"job {job_id}" + (", model.pt" if operation == "fetch" else "")


async def test_a_repeated_change_has_no_second_row(jobs: Jobs, store: Store) -> None:
    caller = caller_with(Role.SUBMITTER)
    job = await jobs.submit(caller, replace(REQUEST, request_key="monday"))
    for _ in range(2):
        assert (await jobs.submit(caller, replace(REQUEST, request_key="monday"))).id == job.id
        await jobs.cancel(caller, job.id)
    found = await store.list_events(AuditFilter(), limit=10)
    assert [(event.action, event.target) for event in found] == [("cancel", "job 1"), ("submit", "job 1")]


async def test_no_row_has_the_value_of_a_parameter(jobs: Jobs, store: Store) -> None:
    request = replace(REQUEST, parameters={"LR": "hunter2"})
    try:
        await jobs.submit(caller_with(Role.SUBMITTER), request)
    except TrackerError:
        await jobs.submit(caller_with(Role.SUBMITTER), REQUEST)
    assert "hunter2" not in repr(await store.list_events(AuditFilter(), limit=10))

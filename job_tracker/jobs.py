"""The API's operations on jobs. They do not depend on the API's protocol."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeVar

from job_tracker.admission.admission import Admission, JobRequest
from job_tracker.admission.parameter_check import ParameterCheck
from job_tracker.backends.registry import Preflight
from job_tracker.common.clock import utc_now
from job_tracker.domain.audit import (
    AuditEvent,
    EventObserver,
    Outcome,
    event_of,
    ignore_event,
    target_of_job,
)
from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import NotPossible, StaleJob, UnknownProject, UnknownReference
from job_tracker.domain.guard import Guard
from job_tracker.domain.job import Ending, Job, JobState
from job_tracker.domain.observers import JobObserver, ignore_job
from job_tracker.domain.open_streams import OpenStreams, StreamUse
from job_tracker.domain.policies import ProjectLimits
from job_tracker.domain.tags import Annotation, checked_count, checked_tags
from job_tracker.domain.telemetry import Artifact, MetricSeries
from job_tracker.files.artifacts import ModelFiles, merged
from job_tracker.logs.reader import LogPiece, LogReader, LogRequest
from job_tracker.scheduling.mirror import Mirror, Outlook
from job_tracker.scheduling.queue_snapshot import QueueSnapshot, snapshot_of
from job_tracker.scheduling.queue_view import Place, QueueFilter, QueuePage, page_of
from job_tracker.scheduling.tree import pool_of, tree_of
from job_tracker.scheduling.use_history import OF_PROJECTS, OF_QUEUES, UseReader
from job_tracker.scheduling.waiting_view import Explanation, explain
from job_tracker.store.jobs import JobFilter, JobStore
from job_tracker.store.queue import QueueView
from job_tracker.store.queue_moves import QueueMoves
from job_tracker.store.reports import ReportStore
from job_tracker.store.scheduling import SchedulingStore

T = TypeVar("T")

MOST_DRAWN: Final = 12
"""The largest number of queues, and of projects, whose history is returned."""
_ONE_QUEUE: Final = tree_of(pool_of({}, 8), {})


@dataclass(frozen=True, slots=True)
class JobView:
    """A job, and the number of jobs before it in its queue (0 if the job is not queued)."""

    job: Job
    position: int
    outlook: Outlook | None = None
    """Why a queued job waits, and when it may start; None: unknown, or the job is not queued."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of jobs, newest first, and the argument `before` for the next page; None on the last page."""

    jobs: Sequence[JobView]
    next_before: int | None


class _Store(JobStore, QueueView, ReportStore, SchedulingStore, Protocol):
    """The parts of a store that the operations use."""


def unlimited(_project: str) -> ProjectLimits | None:
    """Return limits without bounds for any name. This is the default of `limits_of`.

    It never returns None, which would mean that the project does not exist.
    """
    return ProjectLimits()


class Jobs:
    """Submits, reads and cancels jobs. The tracker runs them.

    Every operation raises the errors of domain/rights.py: JobNotFound for a job of a project in which the
    caller has no role, and Forbidden if the caller's role does not allow the operation.
    """

    def __init__(
        self,
        store: _Store,
        logs: LogReader,
        admission: Admission,
        models: ModelFiles,
        *,
        max_queued: int,
        max_queued_of_caller: int | None = None,
        parameter_check: ParameterCheck | None = None,
        preflights: Sequence[Preflight] = (),
        limits_of: Callable[[str], ProjectLimits | None] = unlimited,
        is_deletable: Callable[[str], bool] = lambda _: False,
        clock: Callable[[], datetime] = utc_now,
        on_save: JobObserver = ignore_job,
        note: EventObserver = ignore_event,
        streams: OpenStreams | None = None,
        changes_of: Callable[[Job], AsyncGenerator[bytes, None]] | None = None,
        mirror: Mirror | None = None,
    ) -> None:
        """Each of `preflights` raises InvalidField for a spec whose launch would fail.

        `limits_of` returns the limits of a project, or None if the project does not exist. `is_deletable`
        returns whether the API can delete a project (Projects.is_deletable). `note` gets an event for each
        denial, and for each read of a job's logs, artifacts or recorded changes. Recorded changes are the
        uncommitted changes of the job's program; `changes_of` reads them.

        `mirror` answers questions about the queues. Without it, all jobs are in a single queue.
        """
        self._store = store
        self._uses = UseReader(store)
        self._changes_of = changes_of
        self.mirror = mirror or Mirror(store, lambda: _ONE_QUEUE)
        """Answers questions about the queues. The creator of this `Jobs` object must close the mirror."""
        self._logs = logs
        self._admission = admission
        self._models = models
        self._max_queued = max_queued
        self._max_queued_of_caller = max_queued_of_caller
        self._parameter_check = parameter_check
        self._preflights = preflights
        self._limits_of = limits_of
        self._is_deletable = is_deletable
        self._clock = clock
        self._on_save = on_save
        self._note = note
        self._guard = Guard(note, clock)
        self._queue_moves = QueueMoves(store)
        self.streams = streams or OpenStreams(note=note, clock=clock)
        """The open streams of callers. `recheck` ends the streams that their callers may no longer read."""

    async def submit(self, caller: Caller, request: JobRequest) -> Job:
        """Queue a job in the caller's default project, and return it once it is durable.

        If a job was submitted before with the same request key, return that job. Raises UnknownProject if
        the project does not exist, and InvalidField if the request's key or tags are not allowed. Also raises
        the errors of Admission.check, of the parameter check, of the preflights and of JobStore.submit.
        """
        project = caller.default_project
        self._guard.check(caller, "submit", project)
        limits = self._limits_of(project)
        if limits is None:
            raise UnknownProject(project)
        key = self._admission.key_of(caller, request)
        # This lookup comes first, so that a repeated request gets its job even if admission would now refuse
        # the request.
        if key is not None and (known := await self._store.find_submitted(key)):
            return known
        tags = checked_count("tags", checked_tags("tags", request.tags))
        spec = await self._admission.check(caller, request)
        if self._parameter_check is not None:
            await self._parameter_check.check(caller, spec)
        for preflight in self._preflights:
            await preflight.check(spec)
        now = self._clock()
        # An algorithm may have the same name as a tree, so the detail says first which of the two is meant.
        detail = f"uploaded program {spec.program.tree}" if spec.program else f"algorithm {spec.algorithm}"
        event = event_of(caller, "submit", Outcome.DONE, now, project=project, detail=detail)
        return await self._store.submit(
            *(spec, now, key, self._max_queued, limits.max_queued, tags),
            max_queued_of_caller=self._max_queued_of_caller,
            max_queued_in_queue=self._admission.max_queued_of(spec.queue),
            project_must_be_stored=self._is_deletable(project),
            event=event,
        )

    async def get(self, caller: Caller, job_id: int) -> JobView:
        """Return the job as it is now. Raises JobNotFound."""
        return await self._view(await self._visible(caller, "get", job_id))

    async def list(self, caller: Caller, where: JobFilter, *, limit: int, before: int | None) -> Page:
        """Return at most `limit` jobs with ids below `before`; fewer if the jobs are large.

        Without projects in `where`, return jobs of all projects in which the caller has a role.

        Raises UnknownProject if `before` is None, no jobs are found, and a project in `where` does not exist.
        """
        if where.projects is not None:
            for project in sorted(where.projects):
                self._guard.check(caller, "list", project)
        elif not caller.is_everywhere:
            where = replace(where, projects=frozenset(caller.roles))
        found = await self._store.list_jobs(where, limit=limit, before=before)
        if not found.jobs and before is None:
            for project in where.projects or ():
                if self._limits_of(project) is None:
                    raise UnknownProject(project)
        views = await asyncio.gather(*map(self._view, found.jobs))  # concurrently: the store may be remote
        return Page(views, found.jobs[-1].id if found.has_more else None)

    async def explain(self, caller: Caller, job_id: int) -> Explanation:
        """Return why the job waits. If it does not wait, the result has no reasons. Raises JobNotFound."""
        job = await self._visible(caller, "explain", job_id)
        queued = job.state is JobState.QUEUED
        position = await self._store.queue_position(job) if queued else 0
        return await explain(self.mirror, caller, job, position)

    async def queue(
        self,
        caller: Caller,
        where: QueueFilter,
        *,
        limit: int,
        after: Place | None,
        history: timedelta = timedelta(),
        projects: Sequence[str] = (),
    ) -> QueuePage:
        """Return a page of the waiting jobs that the caller may see, ordered by queue and place.

        The page begins after the place `after`. Without a project in `where`, it has jobs of all projects in
        which the caller has a role. Raises UnknownProject if no jobs are found and the project does not
        exist, and UnknownReference for a queue that the caller may not use.

        `history` is a period of time that ends now. If it is not 0, the page also has the capacity that some
        queues and projects used in this period. These are the first MOST_DRAWN queues of the page, and the
        first MOST_DRAWN of the `projects` in which the caller has a role.
        """
        if where.project:
            self._guard.check(caller, "queue", where.project)
        page = await self.mirror.ask(lambda seen: page_of(seen, caller, where, limit, after))
        if where.project and not page.jobs and self._limits_of(where.project) is None:
            raise UnknownProject(where.project)
        if not history:
            return page
        names = [queue.name for queue in page.queues[:MOST_DRAWN]]
        own = [project for project in projects if caller.role_in(project) is not None][:MOST_DRAWN]
        now, seconds = self._clock().timestamp(), history.total_seconds()
        return replace(
            page,
            history=await self._uses.read(OF_QUEUES, names, now, seconds),
            of_projects=await self._uses.read(OF_PROJECTS, own, now, seconds),
        )

    async def snapshot(
        self, caller: Caller, project: str = "", *, with_machines: bool = False, lanes: int | None = None
    ) -> QueueSnapshot:
        """Return the queue as the caller may see it; see snapshot_of.

        With `with_machines`, machines keep their names if the caller has a role in all projects. `lanes`, if
        given, is the largest number of running jobs in the result, and also of waiting jobs. Raises Forbidden
        if the caller may not see the queue in `project`. "" stands for the caller's default project.
        """
        self._guard.check(caller, "snapshot", project or caller.default_project)
        queued = sum((await self._store.queued_by_queue()).values())
        return await self.mirror.ask(
            lambda seen: snapshot_of(seen, caller, queued, with_machines=with_machines, lanes=lanes)
        )

    async def cancel(self, caller: Caller, job_id: int) -> JobView:
        """Cancel the job, unless its success or failure is decided. Return the job. May be repeated.

        A job without a group (queued, or in its backoff) has ended when this returns. The group of a live
        job is stopped soon. If the master has succeeded and some workers still run, the workers are stopped
        without further time to end by themselves.
        """
        while True:
            job = await self._visible(caller, "cancel", job_id)
            if job.state.is_terminal or (job.ending is not None and job.ending.at_once):
                return await self._view(job)
            ending = Ending(JobState.CANCELLED, self._clock(), at_once=True)
            if not job.state.is_live:
                after = job.ended(ending, ending.decided_at)
            elif job.ending is None or job.ending.state in (JobState.BACKOFF, JobState.QUEUED):
                after = job.decided(ending)
            else:
                after = replace(job, ending=replace(job.ending, at_once=True))
            try:
                event = self._event(caller, "cancel", Outcome.DONE, job)
                cancelled = await self._store.update(after, event=event)
            except StaleJob:
                continue
            self._on_save(job, cancelled)
            return await self._view(cancelled)

    async def annotate(self, caller: Caller, job_id: int, change: Annotation) -> JobView:
        """Change the tags and the note of a job in any state, and return the job. May be repeated.

        Raises InvalidField if the new tags or the new note are not allowed.
        """
        while True:
            job = await self._visible(caller, "annotate", job_id)
            wanted = change.applied_to(job.tags, job.note)
            if wanted == (job.tags, job.note):
                return await self._view(job)
            try:
                event = self._event(caller, "annotate", Outcome.DONE, job)
                return await self._view(await self._store.annotate(job, *wanted, event=event))
            except StaleJob:
                continue

    async def delete(self, caller: Caller, job_id: int) -> None:
        """Delete an ended job. Raises NotPossible if the job has not ended.

        The tracker removes the job's logs and groups later. The model and the checkpoints stay.
        """
        job = await self._visible(caller, "delete", job_id)
        if not job.state.is_terminal:
            raise NotPossible(f"job {job_id} is {job.state}; cancel it, and delete it when it has ended")
        await self._store.delete([job_id], event=self._event(caller, "delete", Outcome.DONE, job))

    def watch(self, caller: Caller, job_id: int) -> AsyncGenerator[JobView, None]:
        """Yield the job now and whenever it has changed, until it has ended. Raises JobNotFound.

        Like every stream, it ends with an error if its caller loses the right to read it; see `streams`.
        """
        return self._stream(caller, "watch", job_id, lambda job: self._watch(job.id))

    async def _watch(self, job_id: int) -> AsyncGenerator[JobView, None]:
        with self._store.changes(job_id) as changes, ExitStack() as stack:
            stack.callback(self._queue_moves.leave, changes)
            last: tuple[object, ...] | None = None
            while True:
                # Keep no reference to the view while its reader is slow: a job's parameters may be large.
                views = [await self._view(await self._store.get(job_id))]
                job, state = views[0].job, views[0].job.state
                before, last = last, (job.version, job.progress, views[0].position, job.tags, job.note)
                del job
                if last != before:
                    yield views.pop()
                if state.is_terminal:
                    return
                if state is JobState.QUEUED:
                    self._queue_moves.watch(job_id, changes)
                else:
                    self._queue_moves.leave(changes)
                await anext(changes)

    def logs(self, caller: Caller, job_id: int, wanted: LogRequest) -> AsyncGenerator[LogPiece, None]:
        """Yield the output of an attempt's processes; with `follow`, future output, too.

        See LogReader.read.
        """

        def read(job: Job) -> AsyncGenerator[LogPiece, None]:
            self._note(self._event(caller, "logs", Outcome.READ, job))
            return self._logs.read(caller, job.id, wanted)

        return self._stream(caller, "logs", job_id, read)

    async def metrics(
        self,
        caller: Caller,
        job_id: int,
        names: Collection[str],
        *,
        containing: str = "",
        after: str = "",
        most: int | None = None,
    ) -> Sequence[MetricSeries]:
        """Return the job's series with these names, sorted by name; if `names` is empty, return all series.

        `containing` selects the series whose names contain this text, regardless of case. `after` selects the
        series whose names come after this name. Of the selected series, the first `most` are returned. Raises
        JobNotFound.
        """
        await self._visible(caller, "metrics", job_id)
        wanted = names or None
        if containing or after or most is not None:
            text = containing.casefold()
            known = await self._store.metric_names(job_id)
            found = [each for each in known if each > after and text in each.casefold()]
            wanted = [each for each in found if not names or each in names][:most]
        return await self._store.metrics(job_id, wanted)

    async def artifacts(self, caller: Caller, job_id: int) -> tuple[Job, Sequence[tuple[Artifact, bool]]]:
        """Return the job and its artifacts, each with a flag that says whether the artifact can be fetched.

        Raises JobNotFound and StorageUnavailable.
        """
        job = await self._visible(caller, "artifacts", job_id)
        self._note(self._event(caller, "artifacts", Outcome.READ, job))
        files, reported = await asyncio.gather(self._models.list(job), self._store.artifacts(job_id))
        return job, merged(files, reported)

    def fetch(self, caller: Caller, job_id: int, name: str) -> AsyncGenerator[bytes, None]:
        """Yield the content of the job's artifact `name`, in pieces.

        Raises JobNotFound and the errors of ModelFiles.read.
        """

        def read(job: Job) -> AsyncGenerator[bytes, None]:
            self._note(self._event(caller, "fetch", Outcome.READ, job, f", {name}"))
            return self._models.read(job, name)

        return self._stream(caller, "fetch", job_id, read)

    def changes(self, caller: Caller, job_id: int) -> AsyncGenerator[bytes, None]:
        """Yield the text of the uncommitted changes that were recorded with the job.

        Raises JobNotFound, StorageUnavailable, and UnknownReference if no changes are kept for the job.
        """

        def read(job: Job) -> AsyncGenerator[bytes, None]:
            if self._changes_of is None:
                raise UnknownReference("job_id", "this service runs no uploaded programs")
            self._note(self._event(caller, "changes", Outcome.READ, job))
            return self._changes_of(job)

        return self._stream(caller, "changes", job_id, read)

    def _stream(
        self, caller: Caller, operation: str, job_id: int, items_of: Callable[[Job], AsyncGenerator[T, None]]
    ) -> AsyncGenerator[T, None]:
        """Yield the items of a stream as long as the caller may use the operation on the job."""

        async def begin() -> tuple[StreamUse, AsyncGenerator[T, None]]:
            job = await self._visible(caller, operation, job_id)
            return StreamUse(caller, operation, job.spec.project, target_of_job(job.id)), items_of(job)

        return self.streams.read(begin)

    async def _visible(self, caller: Caller, operation: str, job_id: int) -> Job:
        """Return the job if the caller may use the operation on it. Raises JobNotFound and Forbidden."""
        job = await self._store.get(job_id)
        self._guard.check_job(caller, operation, job)
        return job

    def _event(self, caller: Caller, action: str, outcome: Outcome, job: Job, part: str = "") -> AuditEvent:
        """Return an audit event on a job. `part`, which names a part of the job, is added to the target."""
        target, project = target_of_job(job.id) + part, job.spec.project
        return event_of(caller, action, outcome, self._clock(), project=project, target=target)

    async def _view(self, job: Job) -> JobView:
        if job.state is not JobState.QUEUED:
            return JobView(job, 0)
        return JobView(job, await self._store.queue_position(job), await self.mirror.outlook_of(job.id))

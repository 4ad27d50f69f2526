"""Logs outlive their group: they move into storage after its stop, or as soon as possible."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from job_tracker.backends.fake import FakeBackend
from job_tracker.domain import naming
from job_tracker.domain.caller import BUILT_IN
from job_tracker.domain.errors import (
    BackendUnavailable,
    InvalidField,
    LimitExceeded,
    LogsNotFound,
    StorageUnavailable,
)
from job_tracker.domain.group import GroupRef
from job_tracker.domain.job import Job, JobState
from job_tracker.domain.policies import Elastic
from job_tracker.logs import archive as archives
from job_tracker.logs import collector
from job_tracker.logs.archive import LogArchive
from job_tracker.logs.collector import LogCollector
from job_tracker.logs.open_logs import LogBounds
from job_tracker.logs.positions import Position
from job_tracker.logs.reader import LogPiece, LogReader, LogRequest
from job_tracker.logs.records import BEGINNING, last_time
from job_tracker.tracking.tracker import Tracker
from tests.support.callers import caller_at
from tests.support.jobs import job
from tests.support.logs import pieces_of, records, time
from tests.support.tracked_service import Service

HELLO = {"PRINT": "hello"}
RUNNING = {**HELLO, "RUN_SECONDS": "forever"}


async def text(reader: LogReader, of: Job, **wanted: Any) -> str:
    return "".join([piece.text async for piece in reader.read(BUILT_IN, of.id, LogRequest(**wanted))])


def another_replica(service: Service) -> LogReader:
    """Return the log reader of another replica: it shares store and storage, but sees no groups."""
    return LogReader(service.store, FakeBackend(), service.archive)


class Away:
    """Storage that refuses all writes until `back` is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(archives._Upload, "_begin", self._refuse)

    @staticmethod
    def _refuse(upload: object) -> None:
        raise PermissionError(upload)

    def back(self) -> None:
        self._monkeypatch.undo()


async def test_any_replica_reads_the_log_of_a_job_that_has_ended(service: Service) -> None:
    ended = await service.reaches((await service.submit(HELLO, instances=2)).id, JobState.SUCCEEDED)
    assert service.world.stopped == {}, "the only log is that in storage"
    for rank in range(2):
        assert await text(another_replica(service), ended, rank=rank) == "hello\n"
        assert await text(another_replica(service), ended, rank=rank, follow=True) == "hello\n"


async def test_a_log_reads_the_same_while_the_job_runs_and_afterwards(service: Service) -> None:
    running = await service.reaches((await service.submit(RUNNING)).id, JobState.RUNNING)
    reader = LogReader(service.store, service.backend, service.archive)
    (piece,) = [each async for each in reader.read(BUILT_IN, running.id, LogRequest())]
    following = asyncio.create_task(text(reader, running, follow=True))
    await service.jobs.cancel(BUILT_IN, running.id)
    assert await following == "hello\n"
    await service.reaches(running.id, JobState.CANCELLED)
    (again,) = [each async for each in reader.read(BUILT_IN, running.id, LogRequest())]
    assert (again.text, again.timed_text, again.position) == ("hello\n", piece.timed_text, piece.position)
    assert await text(reader, running, position=str(piece.position)) == ""


async def test_unavailable_storage_does_not_delay_the_end_and_loses_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Away(monkeypatch)
    ended = await service.reaches((await service.submit(HELLO)).id, JobState.SUCCEEDED)
    reader = LogReader(service.store, service.backend, service.archive)
    assert await text(reader, ended) == "hello\n", "the log is still on its machine"
    away.back()
    await look(service)
    assert service.world.stopped == {}
    assert await text(another_replica(service), ended) == "hello\n"


async def test_storage_that_hangs_does_not_delay_the_end(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = asyncio.Event()
    write = LogArchive.write

    async def slow(*args: Any) -> None:
        await answers.wait()
        await write(*args)

    monkeypatch.setattr(LogArchive, "write", slow)
    monkeypatch.setattr("job_tracker.logs.collector._PROMPT_SECONDS", 0.1)
    ended = await service.reaches((await service.submit(HELLO)).id, JobState.SUCCEEDED)
    assert ended.group in service.world.stopped
    answers.set()
    await service.logs._collecting.wait()
    assert await text(another_replica(service), ended) == "hello\n"
    assert service.world.stopped == {}


async def look(service: Service) -> None:
    """Run one round of a collector, as every replica does."""
    collector = LogCollector(service.store, service.world, service.archive)
    collecting = asyncio.create_task(collector.run())
    while service.world.stopped and not collecting.done():
        await asyncio.sleep(0.01)
    collecting.cancel()
    await asyncio.wait([collecting])


async def test_logs_that_a_killed_service_left_behind_are_collected(service: Service) -> None:
    running = await service.reaches((await service.submit(RUNNING)).id, JobState.RUNNING)
    await service.stop()
    await service.backend.stop(running.group, service.options["stop_grace"])
    await service.start()
    await service.reaches(running.id, JobState.FAILED)
    await look(service)
    assert await text(another_replica(service), running) == "hello\n"


@pytest.mark.parametrize("trouble", [BackendUnavailable("it cannot be read"), OSError(5, "damaged")])
async def test_a_log_that_cannot_be_read_does_not_keep_others_from_storage(
    service: Service, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    groups = [job(HELLO, job_id=number).group for number in (1, 2)]
    for number in (1, 2):
        ended = await service.reaches((await service.submit(HELLO)).id, JobState.SUCCEEDED)
        await service.logs.forget(ended.remains)
        await service.backend.launch(ended)
        await service.backend.stop(ended.group, service.options["stop_grace"])
        groups[number - 1] = ended.group
    logs = FakeBackend.logs

    def refuse(
        backend: FakeBackend, group: GroupRef, *args: Any, **options: Any
    ) -> AsyncGenerator[bytes, None]:
        if group == groups[0]:
            raise trouble
        return logs(backend, group, *args, **options)

    monkeypatch.setattr(FakeBackend, "logs", refuse)
    collector = LogCollector(service.store, service.world, service.archive, period=0.01)
    collecting = asyncio.create_task(collector.run())
    while groups[1] in service.world.stopped and not collecting.done():
        await asyncio.sleep(0.01)
    monkeypatch.undo()
    while service.world.stopped and not collecting.done():
        await asyncio.sleep(0.01)
    assert not service.world.stopped
    collecting.cancel()
    await asyncio.wait([collecting])


async def test_unfinished_files_are_removed_from_storage(service: Service) -> None:
    running = await service.reaches((await service.submit(RUNNING)).id, JobState.RUNNING)
    folder = service.folder / "storage" / "logs" / running.group.job_folder / "1"
    folder.mkdir(parents=True)
    (folder / "0.log.gz.1234abcd.part").touch()  # from a killed service
    service.world.end_rank(running.group, 0, 0)
    await service.reaches(running.id, JobState.SUCCEEDED)
    assert [file.name for file in folder.iterdir()] == ["0.log.gz"]


async def test_logs_of_live_groups_and_logs_in_storage_stay_untouched(service: Service) -> None:
    ended = await service.reaches((await service.submit(HELLO)).id, JobState.SUCCEEDED)
    await service.backend.launch(ended)  # a stray that prints something else
    service.world.live[ended.group].printed = [records("other")]
    await service.backend.stop(ended.group, service.options["stop_grace"])
    running = await service.reaches((await service.submit(RUNNING)).id, JobState.RUNNING)
    service.world.stopped[running.group] = service.world.live[running.group]
    collector = LogCollector(service.store, service.world, service.archive)
    await collector._look()
    assert set(service.world.stopped) == {running.group}
    assert await text(another_replica(service), ended) == "hello\n"
    assert not await service.archive.has(running.group, 0)


async def test_the_logs_of_a_deleted_job_are_deleted(service: Service) -> None:
    stranger = GroupRef("program-77", 77, 1)
    await service.backend.launch(job(HELLO, job_id=77))
    await service.backend.stop(stranger, service.options["stop_grace"])
    await look(service)
    with pytest.raises(LogsNotFound):
        await anext(service.backend.logs(stranger, 0))


async def test_a_job_does_not_get_the_logs_of_the_same_id_in_an_earlier_store(
    service: Service,
) -> None:
    ended = await service.reaches(
        (await service.submit(HELLO, home=naming.home("default", "1a2b3c4d"))).id, JobState.SUCCEEDED
    )
    await service.backend.launch(job({"PRINT": "of the version before"}))
    await service.backend.stop(job().group, service.options["stop_grace"])
    await look(service)
    assert not service.world.stopped
    assert await text(another_replica(service), ended) == "hello\n"
    folders = [path.name for path in (service.folder / "storage" / "logs").rglob("0.log.gz")]
    assert (service.folder / "storage/logs/default/1a2b3c4d-1/1/0.log.gz").exists()
    assert len(folders) == 1


async def test_unreadable_storage_is_an_error_and_not_an_empty_log(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = await service.reaches((await service.submit(HELLO)).id, JobState.SUCCEEDED)

    def refuse(path: str) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(archives, "_download", refuse)
    with pytest.raises(StorageUnavailable):
        await text(another_replica(service), ended)


async def test_all_ranks_are_read_in_order_of_time_with_positions_to_continue_from(service: Service) -> None:
    ended = await service.reaches((await service.submit(HELLO, instances=2)).id, JobState.SUCCEEDED)
    await service.archive.write(ended.group, 0, pieces_of([records("a", "c", "e")]))
    await service.archive.write(ended.group, 1, pieces_of([records("b", "d", first=0.5)]))
    reader = another_replica(service)
    found = [piece async for piece in reader.read(BUILT_IN, ended.id, LogRequest(all_ranks=True))]
    assert [(piece.rank, piece.text) for piece in found] == [
        (0, "a\n"),
        (1, "b\n"),
        (0, "c\n"),
        (1, "d\n"),
        (0, "e\n"),
    ]
    for number, piece in enumerate(found):
        rest = await text(reader, ended, all_ranks=True, position=str(piece.position))
        assert rest == "".join(later.text for later in found[number + 1 :])
    assert await text(reader, ended, all_ranks=True, tail_lines=1) == "d\ne\n"


async def test_reading_continues_when_a_log_moves_into_storage(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await service.reaches((await service.submit(RUNNING)).id, JobState.RUNNING)
    whole = [records("a", "b"), records("c", first=2)]
    await service.archive.write(running.group, 0, pieces_of(whole))

    async def until_it_goes(*_: Any, **__: Any) -> Any:
        yield whole[0]
        await service.jobs.cancel(BUILT_IN, running.id)
        await service.reaches(running.id, JobState.CANCELLED)
        await service.archive.write(running.group, 0, pieces_of(whole))
        raise LogsNotFound("moved")

    monkeypatch.setattr(service.backend, "logs", until_it_goes)
    assert await text(LogReader(service.store, service.backend, service.archive), running) == "a\nb\nc\n"


async def test_a_log_that_was_stored_is_read_before_the_end_of_the_job_is_written(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, end = asyncio.Event(), Tracker._end

    async def late(*what: Any) -> Job:
        await goes_on.wait()
        return await end(*what)

    monkeypatch.setattr(Tracker, "_end", late)
    running = await service.reaches((await service.submit(RUNNING)).id, JobState.RUNNING)
    await service.jobs.cancel(BUILT_IN, running.id)
    while not await service.archive.has(running.group, 0) or running.group in service.world.stopped:
        await asyncio.sleep(0.01)
    reader = LogReader(service.store, service.backend, service.archive)
    assert (await service.store.get(running.id)).state is JobState.RUNNING
    assert await text(reader, running) == "hello\n"
    goes_on.set()
    await service.reaches(running.id, JobState.CANCELLED)


async def test_a_log_moves_into_storage_while_the_end_of_the_job_is_decided(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await service.reaches((await service.submit(RUNNING)).id, JobState.RUNNING)
    goes_on, end = asyncio.Event(), Tracker._end

    async def late(*what: Any) -> Job:
        await goes_on.wait()
        return await end(*what)

    async def until_it_goes(*_: Any, **__: Any) -> Any:
        await service.jobs.cancel(BUILT_IN, running.id)
        while not await service.archive.has(running.group, 0) or running.group in service.world.stopped:
            await asyncio.sleep(0.01)
        nothing: list[bytes] = []
        for piece in nothing:
            yield piece
        raise LogsNotFound("moved")

    monkeypatch.setattr(Tracker, "_end", late)
    reader = LogReader(service.store, service.backend, service.archive)
    with monkeypatch.context() as patched:
        patched.setattr(service.backend, "logs", until_it_goes)
        reading = LogReader(service.store, service.backend, service.archive)
        assert await text(reading, running) == "hello\n"
    goes_on.set()
    await service.reaches(running.id, JobState.CANCELLED)
    assert await text(reader, running) == "hello\n"


@pytest.mark.parametrize("all_ranks", [False, True])
async def test_following_a_rank_goes_on_after_its_restarts(
    service: Service, monkeypatch: pytest.MonkeyPatch, all_ranks: bool
) -> None:
    elastic = Elastic(min_instances=1, max_restarts=3)
    job = await service.reaches((await service.submit(RUNNING, 2, elastic=elastic)).id, JobState.RUNNING)
    ends = [asyncio.Event(), asyncio.Event()]

    async def logs(_: GroupRef, rank: int, *, after: bytes = BEGINNING, **__: Any) -> Any:
        """The log of rank 1: each of its starts prints a line, and its stream ends with it."""
        current = await service.store.get(job.id)
        printed = [records("a"), records("b", first=1), records("c", first=2)]
        for line in printed[: current.restarts_of(1) + 1] if rank == 1 else ():
            if last_time(line) > after:
                yield line
        if rank == 1 and current.restarts_of(1) < len(ends):
            await ends[current.restarts_of(1)].wait()

    with monkeypatch.context() as patched:
        patched.setattr(service.backend, "logs", logs)
        reader = LogReader(service.store, service.backend, service.archive)
        wanted = {"all_ranks": True} if all_ranks else {"rank": 1}
        request = LogRequest(follow=True, **wanted)
        lines = reader.read(BUILT_IN, job.id, request)
        assert (await anext(lines)).text == "a\n"
        for number, line in enumerate(("b\n", "c\n")):
            service.world.end_rank(job.group, 1, 9)
            ends[number].set()
            assert (await anext(lines)).text == line
        await lines.aclose()
    await service.jobs.cancel(BUILT_IN, job.id)
    await service.reaches(job.id, JobState.CANCELLED)


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"rank": 2}, "rank"),
        ({"rank": 1, "all_ranks": True}, "rank"),
        ({"attempt": 2}, "attempt"),
        ({"tail_lines": -1}, "tail_lines"),
        ({"position": "elsewhere"}, "position"),
        ({"position": "1 0=today"}, "position"),
        ({"position": "0"}, "position"),
        ({"position": "2"}, "position"),
        ({"position": "1", "tail_lines": 1}, "tail_lines"),
    ],
)
async def test_invalid_log_requests_are_refused(service: Service, wanted: dict[str, Any], field: str) -> None:
    ended = await service.reaches((await service.submit(instances=2)).id, JobState.SUCCEEDED)
    with pytest.raises(InvalidField) as caught:
        await text(another_replica(service), ended, **wanted)
    assert caught.value.field == field


def test_a_position_survives_encoding() -> None:
    position = Position(3).moved(0, time(1)).moved(12, time(2)).moved(0, time(3))
    assert Position.parse(str(position)) == position
    assert (position.after(0), position.after(12), position.after(1)) == (time(3), time(2), b"")


@pytest.mark.parametrize("bound", ["in_all", "for_caller", "of_job"])
async def test_concurrent_reads_of_logs_of_running_jobs_are_limited(service: Service, bound: str) -> None:
    running = await service.reaches((await service.submit(RUNNING, instances=3)).id, JobState.RUNNING)
    other = await service.reaches((await service.submit(RUNNING)).id, JobState.RUNNING)
    reader = LogReader(service.store, service.backend, service.archive, LogBounds(**{bound: 3}))

    async def begin(job: Job, caller: str, **wanted: Any) -> AsyncGenerator[LogPiece, None]:
        pieces = reader.read(caller_at(caller), job.id, LogRequest(follow=True, **wanted))
        await anext(pieces)
        return pieces

    following = await asyncio.create_task(begin(running, "a", all_ranks=True))
    too_many = asyncio.create_task(begin(other if bound == "for_caller" else running, "a"))
    with pytest.raises(LimitExceeded, match=r"^3 logs of running jobs are being read .* read single ranks"):
        await too_many
    if bound != "in_all":
        another = other if bound == "of_job" else running
        await (await asyncio.create_task(begin(another, "b"))).aclose()
    await following.aclose()
    await (await asyncio.create_task(begin(running, "a", all_ranks=True))).aclose()
    assert not reader._live._open


async def test_concurrent_reads_of_logs_of_ended_jobs_are_limited(service: Service) -> None:
    ended = await service.reaches((await service.submit(instances=3)).id, JobState.SUCCEEDED)
    for rank in range(3):
        await service.archive.write(ended.group, rank, pieces_of([records("a")]))
    reader = LogReader(service.store, service.backend, service.archive, ended=LogBounds(for_caller=3))
    following = reader.read(BUILT_IN, ended.id, LogRequest(all_ranks=True))
    await anext(following)
    with pytest.raises(LimitExceeded, match=r"^3 logs of ended jobs are being read .* read single ranks"):
        await anext(reader.read(BUILT_IN, ended.id, LogRequest()))
    await following.aclose()
    assert [piece.text async for piece in reader.read(BUILT_IN, ended.id, LogRequest())] == ["a\n"]
    assert not reader._kept._open


async def test_logs_that_are_being_stored_are_not_left_behind_by_a_delete(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the upload would end after the logs were deleted."""
    goes_on, write = asyncio.Event(), LogArchive.write

    async def slow(archive: LogArchive, *what: Any) -> None:
        await goes_on.wait()
        await write(archive, *what)

    monkeypatch.setattr(LogArchive, "write", slow)
    monkeypatch.setattr(collector, "_PROMPT_SECONDS", 0.01)
    ended = await service.reaches((await service.submit(HELLO)).id, JobState.SUCCEEDED)
    with pytest.raises(StorageUnavailable, match=f"the logs of job {ended.id} are still being stored"):
        await service.logs.forget(ended.remains)
    goes_on.set()
    while not await service.archive.has(ended.group, 0) or ended.group in service.logs._collecting:
        await asyncio.sleep(0.01)
    await service.logs.forget(ended.remains)
    assert not await service.archive.has(ended.group, 0)


async def test_logs_that_wait_for_the_storage_are_not_left_behind_by_a_delete(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Away(monkeypatch)
    ended = await service.reaches((await service.submit(HELLO)).id, JobState.SUCCEEDED)
    away.back()
    begun, goes_on, write = asyncio.Event(), asyncio.Event(), LogArchive.write

    async def slow(archive: LogArchive, *what: Any) -> None:
        begun.set()
        await goes_on.wait()
        await write(archive, *what)

    monkeypatch.setattr(LogArchive, "write", slow)
    looking = asyncio.create_task(service.logs._look())
    await begun.wait()
    with pytest.raises(StorageUnavailable, match=f"the logs of job {ended.id} are still being stored"):
        await service.logs.forget(ended.remains)
    goes_on.set()
    await looking
    await service.logs.forget(ended.remains)
    assert not await service.archive.has(ended.group, 0)

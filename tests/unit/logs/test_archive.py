"""Logs in storage are complete or absent, and are read like those of a live group."""

import asyncio
import gzip
import threading
import tracemalloc
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from job_tracker.domain.errors import LogsNotFound, StorageUnavailable
from job_tracker.domain.group import GroupRef
from job_tracker.files.untrusted import Place
from job_tracker.logs.archive import LogArchive
from job_tracker.logs.records import text_of
from tests.support.logs import pieces_of, records, time
from tests.support.patience import PATIENCE

GROUP = GroupRef("program-1", 1, 1)
NEXT = GroupRef("program-1-r1", 1, 2)
LINES = [f"line {number} " + "x" * 200 for number in range(2000)]


@pytest.fixture(params=["memory", "file"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place for logs in each kind of storage."""
    yield "memory://a-bucket/logs" if request.param == "memory" else str(tmp_path / "logs")
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


async def text(archive: LogArchive, rank: int = 0, group: GroupRef = GROUP, **options: Any) -> str:
    return "".join([text_of(piece) async for piece in archive.logs(group, rank, **options)])


def files(root: str) -> list[str]:
    filesystem, path = fsspec.core.url_to_fs(root)
    return sorted(found[len(filesystem._strip_protocol(path)) :] for found in filesystem.find(path))


def whole() -> AsyncGenerator[bytes, None]:
    return pieces_of([records(*LINES[:700]), records(*LINES[700:], first=700)])


async def test_a_stored_log_can_be_read(root: str) -> None:
    archive = LogArchive(root)
    assert not await archive.has(GROUP, 0)
    await archive.write(GROUP, 0, whole())
    assert await archive.has(GROUP, 0)
    assert (await text(LogArchive(root))).splitlines() == LINES
    assert files(root) == ["/1/1/0.log.gz"]


@pytest.mark.parametrize("number", [0, 1, 699, 1999])
async def test_reading_starts_after_any_time_or_at_the_last_lines(root: str, number: int) -> None:
    archive = LogArchive(root)
    await archive.write(GROUP, 0, whole())
    assert (await text(archive, after=time(number))).splitlines() == LINES[number + 1 :]
    assert (await text(archive, tail_lines=number)).splitlines() == (LINES[-number:] if number else [])
    assert (await text(archive, after=time(1990), tail_lines=5)).splitlines() == LINES[-5:]


async def test_the_end_of_a_large_log_is_read_without_its_beginning(tmp_path: Path) -> None:
    archive, path = LogArchive(str(tmp_path)), tmp_path / "1" / "1" / "0.log.gz"
    blocks = [records(*(f"{n} {'x' * 2000}" for n in range(first, first + 600)), first=first)
              for first in range(0, 6000, 600)]  # fmt: skip
    await archive.write(GROUP, 0, pieces_of(blocks))
    content = bytearray(path.read_bytes())
    content[20 : len(content) // 2] = bytes(len(content) // 2 - 20)  # it cannot be read
    path.write_bytes(content)
    found = (await text(archive, tail_lines=700)).splitlines()
    assert [line.split()[0] for line in found] == [str(number) for number in range(5300, 6000)]
    found = (await text(archive, after=time(5499))).splitlines()
    assert [line.split()[0] for line in found] == [str(number) for number in range(5500, 6000)]


async def test_a_log_of_an_earlier_version_is_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "1" / "1" / "0.log.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(records(*LINES)))
    archive = LogArchive(str(tmp_path))
    assert (await text(archive, tail_lines=3)).splitlines() == LINES[-3:]
    assert (await text(archive, after=time(1500))).splitlines() == LINES[1501:]


async def test_a_log_that_was_never_stored_is_not_found(root: str) -> None:
    archive = LogArchive(root)
    await archive.write(GROUP, 0, whole())
    for group, rank in ((GROUP, 1), (NEXT, 0)):
        with pytest.raises(LogsNotFound):
            await text(archive, rank, group)


async def test_writing_again_gives_the_same_file(tmp_path: Path) -> None:
    archive, path = LogArchive(str(tmp_path)), tmp_path / "1" / "1" / "0.log.gz"
    await archive.write(GROUP, 0, pieces_of([records("half of it")]))
    await archive.write(GROUP, 0, whole())
    first = path.read_bytes()
    await archive.write(GROUP, 0, whole())
    assert path.read_bytes() == first
    assert len(first) < 100_000


async def test_a_log_that_fails_in_the_middle_changes_nothing(root: str) -> None:
    archive = LogArchive(root)
    await archive.write(GROUP, 0, pieces_of([records("before")]))

    async def broken() -> AsyncGenerator[bytes, None]:
        yield records(*LINES)
        raise LogsNotFound("it went away")

    for rank in (0, 1):
        with pytest.raises(LogsNotFound, match="went away"):
            await archive.write(GROUP, rank, broken())
    assert await text(archive) == "before\n"
    assert not await archive.has(GROUP, 1)


async def test_deleting_the_logs_of_a_job_covers_all_attempts(root: str) -> None:
    archive = LogArchive(root)
    other = GroupRef("program-2", 2, 1)
    for group in (GROUP, NEXT, other):
        await archive.write(group, 0, whole())
    for _ in range(2):
        await archive.delete(GROUP.job_folder)
    assert files(root) == ["/2/1/0.log.gz"]


async def test_an_upload_abandoned_while_its_file_is_created_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun, answers, create = threading.Event(), threading.Event(), Place.create

    def slow(place: Place) -> BinaryIO:
        file = create(place)
        begun.set()
        answers.wait(PATIENCE)
        return file

    monkeypatch.setattr(Place, "create", slow)
    writing = asyncio.create_task(LogArchive(str(tmp_path)).write(GROUP, 0, whole()))
    assert await asyncio.to_thread(begun.wait, PATIENCE)
    assert [name[-5:] for name in files(str(tmp_path))] == [".part"]
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    answers.set()
    async with asyncio.timeout(PATIENCE):
        while files(str(tmp_path)):
            await asyncio.sleep(0.01)


async def test_unfinished_uploads_of_a_killed_service_are_removed(root: str) -> None:
    archive = LogArchive(root)
    for rank in range(2):
        await archive.write(GROUP, rank, whole())
    with fsspec.open(f"{root}/1/1/0.log.gz.1234abcd.part", "wb") as left_behind:
        left_behind.write(b"")
    for _ in range(2):
        await archive.tidy(GROUP)
    assert files(root) == ["/1/1/0.log.gz", "/1/1/1.log.gz"]
    await archive.tidy(NEXT)  # there is no folder


async def test_a_failing_storage_raises_storage_unavailable(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file where a folder should be")
    archive = LogArchive(str(tmp_path / "logs"))
    with pytest.raises(StorageUnavailable, match="the storage of logs at"):
        await archive.write(GROUP, 0, whole())
    (tmp_path / "damaged" / "1" / "1").mkdir(parents=True)
    (tmp_path / "damaged" / "1" / "1" / "0.log.gz").write_bytes(b"no gzip at all")
    with pytest.raises(StorageUnavailable, match="the storage of logs at"):
        await text(LogArchive(str(tmp_path / "damaged")))


async def test_a_hanging_storage_times_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers = threading.Event()
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda _: answers.wait() and None)
    archive = LogArchive(str(tmp_path), patience=0.1)
    with pytest.raises(StorageUnavailable, match="no answer in"):
        await archive.has(GROUP, 0)
    with pytest.raises(StorageUnavailable, match="no answer in"):
        await archive.write(GROUP, 0, whole())
    answers.set()


async def test_bytes_without_a_line_break_are_not_collected_in_memory(tmp_path: Path) -> None:
    archive, path = LogArchive(str(tmp_path)), tmp_path / "1" / "1" / "0.log.gz"
    await archive.write(GROUP, 0, pieces_of([records("before")]))
    before = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(before + bytes(64 << 20), 1))  # as a job that writes to storage could
    tracemalloc.start()
    try:
        assert await text(archive) == "before\n"
        assert await text(archive, tail_lines=5) == "before\n"
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()

"""Logs are read as printed, in bounded pieces, from a time or from the last lines on."""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_tracker.domain.errors import LogsNotFound
from job_tracker.files.untrusted import place_of
from job_tracker.logs.records import last_time, lines_of, records_of, text_of
from job_tracker.logs.segments import read, tail
from job_tracker.logs.writing import LONGEST_PART, SMALLEST_LOG, LogWriter
from tests.support.logs import made, record, records, time

PIECE = 64 * 1024
LINE = "a line of some length " * 4


def write(folder: Path, log: bytes, most: int = 10 * SMALLEST_LOG) -> Path:
    writer = LogWriter(str(folder / "log"), most)
    writer.write(log)
    writer.close()
    return folder / "log"


async def pieces(path: Path, **options: object) -> list[bytes]:
    return [piece async for piece in read(place_of(path), **options)]  # type: ignore[arg-type]


async def text(path: Path, **options: object) -> str:
    return "".join(map(text_of, await pieces(path, **options)))


@pytest.mark.parametrize("ending", ["", "\n"])
@pytest.mark.parametrize("lines", [0, 1, 2, 3, 4, 100])
async def test_a_tail_is_the_last_lines(tmp_path: Path, lines: int, ending: str) -> None:
    path = write(tmp_path, made("one\ntwo\n\nfour" + ending))
    expected = ["one\n", "two\n", "\n", "four" + ending][-lines:] if lines else []
    assert await text(path, tail_lines=lines) == "".join(expected)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_read_as_printed(tmp_path_factory: pytest.TempPathFactory, printed: str) -> None:
    path = write(tmp_path_factory.mktemp("any"), made(printed))
    assert asyncio.run(text(path)) == printed


async def test_pieces_have_whole_records_and_a_bounded_size(tmp_path: Path) -> None:
    path = write(tmp_path, made(f"{LINE}\n" * 20_000))
    found = await pieces(path)
    assert len(found) > 1
    assert all(piece.endswith(b"\n") and len(piece) <= PIECE for piece in found)
    assert "".join(map(text_of, found)) == f"{LINE}\n" * 20_000
    assert await text(path, tail_lines=15_000) == f"{LINE}\n" * 15_000


async def test_a_very_long_line_is_read_as_printed(tmp_path: Path) -> None:
    printed = "é" * (3 * PIECE + 1)
    path = write(tmp_path, made(printed))
    found = b"".join(await pieces(path))
    assert text_of(found) == printed
    assert max(map(len, records_of(found))) <= LONGEST_PART + 40


def test_a_line_without_a_time_is_not_a_printed_line() -> None:
    piece = records("a") + b"\xff\xb4" * 15 + b" F b\n" + b"thirty bytes that are not time P c\n"
    assert [line for _, line in lines_of(piece)] == ["a"]


async def test_invalid_utf_8_becomes_replacement_characters(tmp_path: Path) -> None:
    path = write(tmp_path, b"%b F fine\n%b F \xff\xfe\n" % (time(1), time(2)))
    assert await text(path) == "fine\n\ufffd\ufffd\n"


async def test_reading_starts_after_any_time(tmp_path: Path) -> None:
    lines = [f"{LINE} {number}" for number in range(30_000)]  # more than one segment
    path = write(tmp_path, records(*lines))
    assert len(list(path.iterdir())) > 1
    for number in (0, 1, 8000, 20_000, 29_998, 29_999):
        found = await text(path, after=time(number))
        assert found == "".join(f"{line}\n" for line in lines[number + 1 :])
    assert await text(path, after=time(-1)) == await text(path)
    assert await text(path, after=time(7.5), tail_lines=29_992) == await text(path, after=time(7))
    assert await text(path, after=time(7), tail_lines=2) == await text(path, tail_lines=2)


async def test_a_reader_that_continues_gets_every_record_exactly_once(tmp_path: Path) -> None:
    path = write(tmp_path, made(f"{LINE}\n" * 5000))
    found, after = [], b""
    while piece := await anext(read(place_of(path), after=after), None):
        found.append(piece)
        after = last_time(piece)
    assert b"".join(found) == b"".join(await pieces(path))


async def test_records_written_just_before_the_end_are_read(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path / "log"), SMALLEST_LOG)
    writer.write(record("first", 1))
    growing = True
    reading = read(place_of(tmp_path / "log"), is_growing=lambda: growing)
    assert text_of(await anext(reading)) == "first\n"
    second = record("second", 2)
    with (tmp_path / "log" / f"{0:020d}").open("ab") as file:
        file.write(second[:35])
        file.flush()
        waiting = asyncio.ensure_future(anext(reading))
        await asyncio.sleep(0)
        file.write(second[35:] + record("last words", 3))
    growing = False
    assert text_of(await waiting) == "second\nlast words\n"
    assert [piece async for piece in reading] == []
    writer.close()


async def test_a_moved_log_is_read_to_its_end_and_a_removed_one_is_not_found(tmp_path: Path) -> None:
    path = write(tmp_path, made(f"{LINE}\n" * 5000))
    moved, removed = read(place_of(path)), read(place_of(path))
    first = [await anext(moved), await anext(removed)]
    assert first[0] == first[1]
    path = path.rename(tmp_path / "elsewhere")
    assert len(b"".join([piece async for piece in moved])) > PIECE
    for segment in path.iterdir():
        segment.unlink()
    path.rmdir()
    with pytest.raises(LogsNotFound):
        assert [piece async for piece in removed]
    with pytest.raises(LogsNotFound):
        await pieces(path)


def test_the_tail_for_a_diagnosis_is_bounded_and_never_raises(tmp_path: Path) -> None:
    assert tail(place_of(tmp_path / "log"), 5) == ""
    path = write(tmp_path, made("\n".join(str(number) for number in range(100))))
    assert tail(place_of(path), 2) == "98\n99"
    path = write(tmp_path / "2", made(os.urandom(100_000).decode("latin-1")))
    assert 0 < len(tail(place_of(path), 5)) <= 4096

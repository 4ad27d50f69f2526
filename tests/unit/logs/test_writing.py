"""A log stays within its bound and shows gaps; the times of its lines increase."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_tracker.files.untrusted import place_of
from job_tracker.logs.records import TIME, last_time, records_of, text_of
from job_tracker.logs.segments import end, read
from job_tracker.logs.writing import LONGEST_PART, SMALLEST_LOG, LogWriter, RecordMaker
from tests.support.logs import NOON, SECOND, record, time

LEFT_OUT = re.compile(
    r"^\[\.\.\. (\d+) bytes of this log, times included, are not kept \.\.\.\]$", re.MULTILINE
)


def numbered(number: int) -> bytes:
    return record(f"line {number} " + "x" * 900, number)


async def whole(folder: Path, after: bytes = b"") -> bytes:
    return b"".join([piece async for piece in read(place_of(folder), after=after)])


def size_of(folder: Path) -> int:
    return sum(segment.stat().st_size for segment in folder.iterdir())


async def test_a_long_log_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path / "log"), SMALLEST_LOG)
    for number in range(10_000):
        writer.write(numbered(number))
        if number % 100 == 0:
            assert size_of(tmp_path / "log") <= SMALLEST_LOG
    kept = await whole(tmp_path / "log")
    text = text_of(kept)
    lines = [int(line.split()[1]) for line in text.splitlines() if line.startswith("line ")]
    gaps = [number for number, line in enumerate(lines) if number and line != lines[number - 1] + 1]
    assert (lines[0], lines[-1], len(gaps)) == (0, 9999, 1)
    assert gaps[0] * 900 > SMALLEST_LOG // 5
    assert (len(lines) - gaps[0]) * 900 > SMALLEST_LOG // 2
    (missing,) = LEFT_OUT.findall(text)
    mark = next(each for each in records_of(kept) if b"[... " in each)
    assert int(missing) + len(kept) - len(mark) == sum(len(numbered(number)) for number in range(10_000))
    assert int(missing) + len(kept) - len(mark) == writer.end == end(place_of(tmp_path / "log"))
    times = [each[:TIME] for each in records_of(kept)]
    assert times == sorted(set(times))
    writer.close()


async def test_nothing_is_written_to_a_pipe_that_the_program_has_made(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path / "log"), SMALLEST_LOG)
    os.mkfifo(tmp_path / "log" / f"{0:020d}")
    reader = os.open(tmp_path / "log" / f"{0:020d}", os.O_RDONLY | os.O_NONBLOCK)
    writer.write(numbered(0))
    assert os.read(reader, 1) == b""
    os.close(reader)
    writer.write(numbered(1))
    writer.close()
    assert writer.end == len(numbered(0)) + len(numbered(1))
    (tmp_path / "log" / f"{0:020d}").unlink()
    assert numbered(1) in await whole(tmp_path / "log")


async def test_an_overtaken_reader_gets_the_size_of_the_gap(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path / "log"), SMALLEST_LOG)
    for number in range(400):
        writer.write(numbered(number))
    reading = read(place_of(tmp_path / "log"))
    found = await anext(reading)
    for number in range(400, 5000):
        writer.write(numbered(number))
    writer.close()
    found += b"".join([piece async for piece in reading])
    (missing,) = LEFT_OUT.findall(text_of(found))
    lines = sum(each.startswith("line") for each in text_of(found).splitlines())
    assert int(missing) > 0
    assert lines < 5000
    assert text_of(found).splitlines()[-1].startswith("line 4999 ")


async def test_a_gap_is_shown_once_unless_it_grows(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path / "log"), SMALLEST_LOG)
    for number in range(3000):
        writer.write(numbered(number))
    kept = records_of(await whole(tmp_path / "log"))
    mark = next(number for number, each in enumerate(kept) if b"[... " in each)
    for number in (mark - 1, mark, mark + 1):
        assert await whole(tmp_path / "log", kept[number][:TIME]) == b"".join(kept[number + 1 :])
    for number in range(3000, 5000):
        writer.write(numbered(number))
    writer.close()
    later = await whole(tmp_path / "log", kept[mark][:TIME])
    assert len(LEFT_OUT.findall(text_of(later))) == 1
    assert last_time(later) == time(4999)


async def test_a_full_disk_only_loses_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = LogWriter(str(tmp_path / "log"), SMALLEST_LOG)
    writer.write(numbered(0))
    real: Callable[[int, bytes], int] = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[: len(data) // 2]))
    writer.write(numbered(1))
    monkeypatch.undo()
    writer.write(numbered(2))
    writer.close()
    lines = text_of(await whole(tmp_path / "log")).splitlines()
    assert [line.split()[1] for line in lines] == ["0", str(len(numbered(1))), "2"]


@given(st.lists(st.binary(max_size=40), max_size=20), st.lists(st.integers(0, 3 * SECOND), min_size=20))
def test_times_increase_even_if_the_clock_is_set_back(printed: list[bytes], clock: list[int]) -> None:
    ticks = iter(clock)
    maker = RecordMaker(lambda: NOON + next(ticks, 0))
    made = b"".join([maker.records(data) for data in printed]) + maker.rest()
    times = [each[:TIME] for each in records_of(made)]
    assert times == sorted(set(times))
    assert text_of(made) == b"".join(printed).decode(errors="replace")


@given(st.lists(st.integers(0, 3 * LONGEST_PART), max_size=4), st.integers(500, 100_000))
def test_records_do_not_depend_on_how_the_bytes_arrive(lengths: list[int], size: int) -> None:
    printed = b"\n".join(b"%d" % (number % 10) * length for number, length in enumerate(lengths))
    maker = RecordMaker()
    arriving = [printed[start : start + size] for start in range(0, len(printed), size)]
    made = b"".join([maker.records(data) for data in arriving]) + maker.rest()
    assert text_of(made).encode() == printed
    assert all(len(each) <= LONGEST_PART + TIME + 4 for each in records_of(made))

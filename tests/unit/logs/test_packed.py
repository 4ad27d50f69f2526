"""A compressed log is read from near the wanted place, and by any program that reads gzip."""

import gzip
import io
import struct

import pytest

from job_tracker.logs import packed
from job_tracker.logs.packed import BlockWriter, Start, read_index
from tests.support.logs import records, time

BLOCKS = 20
LINES = 10


def block(number: int) -> bytes:
    first = number * LINES
    return records(*(f"line {first + line}" for line in range(LINES)), first=first)


def written(blocks: int) -> io.BytesIO:
    file = io.BytesIO()
    writer = BlockWriter(file)
    for number in range(blocks):
        writer.write(block(number))
    writer.finish()
    return file


def test_any_program_that_reads_gzip_reads_the_whole_log() -> None:
    content = gzip.decompress(written(BLOCKS).getvalue())
    assert content == b"".join(block(number) for number in range(BLOCKS))


@pytest.mark.parametrize("tail", [0, 1, 9, 10, 11, 100, 199, 200, 500])
def test_the_last_lines_begin_in_the_block_that_has_the_first_of_them(tail: int) -> None:
    file = written(BLOCKS)
    index = read_index(file)
    assert index is not None
    assert index.lines == BLOCKS * LINES
    start = index.start(b"", tail)
    assert start.skipped < LINES or tail == 0
    file.seek(start.offset)
    rest = gzip.GzipFile(fileobj=file).read().splitlines()[start.skipped :]
    everything = b"".join(block(number) for number in range(BLOCKS)).splitlines()
    assert rest == (everything[-tail:] if tail else [])


@pytest.mark.parametrize("number", [0, 5, 9, 10, 57, 199])
def test_lines_after_a_time_begin_in_its_block(number: int) -> None:
    file = written(BLOCKS)
    index = read_index(file)
    assert index is not None
    start = index.start(time(number), None)
    file.seek(start.offset)
    assert gzip.GzipFile(fileobj=file).readline() == records(
        f"line {number // LINES * LINES}", first=number // LINES * LINES
    )


def test_a_time_and_a_number_of_lines_give_the_later_place() -> None:
    index = read_index(written(BLOCKS))
    assert index is not None
    assert index.start(time(195), 100).offset == index.blocks[19].offset
    assert index.start(time(3), 15) == Start(index.blocks[18].offset, 5)


def test_a_log_of_one_block_has_no_index() -> None:
    assert read_index(written(1)) is None
    assert read_index(io.BytesIO()) is None


def test_no_records_are_no_block() -> None:
    file = io.BytesIO()
    writer = BlockWriter(file)
    for content in (block(0), b"", block(1), b""):
        writer.write(content)
    writer.finish()
    index = read_index(file)
    assert index is not None
    assert [each.lines for each in index.blocks] == [0, LINES]


def test_an_empty_log_is_a_gzip_file() -> None:
    file = io.BytesIO()
    writer = BlockWriter(file)
    writer.write(b"")
    writer.finish()
    assert gzip.decompress(file.getvalue()) == b""


def test_a_large_log_has_a_coarser_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_MOST_ENTRIES", 4)
    file = written(BLOCKS)
    index = read_index(file)
    assert index is not None
    assert len(index.blocks) <= 4
    start = index.start(b"", 1)
    file.seek(start.offset)
    assert gzip.GzipFile(fileobj=file).read().splitlines()[start.skipped :][0].endswith(b"line 199")


def test_the_largest_index_fits_into_its_field() -> None:
    assert packed._MOST_ENTRIES * packed._ENTRY.size + packed._TRAILER.size + 4 <= 65_535


@pytest.mark.parametrize("place", range(1, 200, 7))
def test_a_damaged_index_is_none_or_sound(place: int) -> None:
    content = bytearray(written(BLOCKS).getvalue())
    content[-place] ^= 0xFF
    index = read_index(io.BytesIO(bytes(content)))
    if index is not None:
        assert all(0 <= each.offset < len(content) for each in index.blocks)


def test_a_forged_length_is_no_index() -> None:
    forged = b"x" * 50 + struct.pack("<QI8s", 2**63, 2**31, b"TLINDEX1") + b"\x03\x00" + bytes(8)
    assert read_index(io.BytesIO(forged)) is None

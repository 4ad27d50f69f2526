"""The part of a log that a page shows, and its lines."""

from collections.abc import AsyncGenerator

import pytest

from job_tracker.domain.errors import InvalidField
from job_tracker.logs.positions import Position
from job_tracker.logs.reader import LogPiece
from job_tracker.logs.writing import time_at
from training_service.web.log_lines import Line, lines_of, part_of, read, shown


def record(second: int, text: str, kind: str = "F") -> bytes:
    return time_at(second * 10**9) + f" {kind} {text}\n".encode()


def piece(*records: bytes, rank: int = 0) -> LogPiece:
    return LogPiece(b"".join(records), rank, Position(1, {rank: records[-1][:30]}))


async def pieces(*parts: LogPiece) -> AsyncGenerator[LogPiece, None]:
    for part in parts:
        yield part


async def numbered(number: int, text: str = "line") -> AsyncGenerator[LogPiece, None]:
    for second in range(number):
        yield piece(record(second, f"{text} {second}"))


def test_a_line_has_its_time_and_rank_and_parts_are_joined() -> None:
    found = list(lines_of(piece(record(1, "a", "P"), record(2, "b"), record(3, "c"), rank=4)))
    assert found == [
        Line("1970-01-01T00:00:01.000000000Z", 4, "ab"),
        Line("1970-01-01T00:00:03.000000000Z", 4, "c"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("10 %\r50 %\r100 %", "100 %"),
        ("a\x00b\x08", "a\ufffdb\ufffd"),
        ("a\tb", "a\tb"),
        ("<script>", "<script>"),
    ],
)
def test_escapes_of_terminals_are_left_out(text: str, expected: str) -> None:
    assert shown(text) == expected


def test_a_long_line_is_cut() -> None:
    assert shown("x" * 20_000).endswith("(20000 characters)")


async def test_the_last_lines_are_kept_within_a_size() -> None:
    found = await read(numbered(9), part_of({}))
    assert [line.text for line in found.lines][-1] == "line 8"
    assert not found.goes_on
    big = await read(numbered(400, "x" * 9_000), part_of({}))
    assert big.is_cut
    assert big.lines[-1].text.endswith(" 399")
    assert sum(len(line.text) for line in big.lines) <= 2 << 20


async def test_a_part_from_a_place_on_ends_after_its_lines() -> None:
    found = await read(numbered(9), part_of({"at": "start", "lines": "3"}))
    assert [line.text for line in found.lines] == ["line 0", "line 1", "line 2"]
    assert found.goes_on


async def test_a_search_finds_lines_without_regard_to_case() -> None:
    found = await read(numbered(30), part_of({"find": "LINE 2"}))
    assert [line.text for line in found.lines][:2] == ["line 2", "line 20"]


async def test_a_search_of_a_large_log_ends_and_can_go_on() -> None:
    large = piece(*(record(0, "x" * 1000) for _ in range(1100)))
    found = await read(pieces(*[large] * 80), part_of({"find": "y"}))
    assert (found.lines, found.goes_on) == ([], True)


def test_a_link_to_a_line_begins_with_that_line() -> None:
    part = part_of({"at": "1970-01-01T00:00:05.000000000Z", "rank": "2"})
    assert part.request(1).position == "1 2=1970-01-01T00:00:04.999999999Z"
    assert part.request(1).tail_lines is None
    assert part_of({}).request(3).tail_lines == 1000
    both = part_of({"rank": "all", "at": "1970-01-01T00:00:05.000000000Z"}).request(1)
    assert both.all_ranks
    assert both.since is not None


@pytest.mark.parametrize(
    "query",
    [
        {"rank": "x"},
        {"rank": "-1"},
        {"attempt": "9" * 30},
        {"lines": "0"},
        {"lines": "20001"},
        {"at": "yesterday"},
        {"find": "x" * 201},
    ],
)
def test_a_bad_part_is_named(query: dict[str, str]) -> None:
    with pytest.raises(InvalidField) as caught:
        part_of(query)
    assert caught.value.field in query

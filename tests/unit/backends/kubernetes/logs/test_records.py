"""What kubelet sends becomes records: in order, once each, and nothing of kubelet's own words."""

import pytest

from job_tracker.backends.kubernetes.logs import _PodRecords
from job_tracker.logs.records import TIME, records_of, text_of
from job_tracker.logs.writing import LONGEST_PART

DAY = b"2026-11-21T12:00:0"


def times(piece: bytes) -> list[str]:
    return [record[TIME - 14 : TIME].decode() for record in records_of(piece)]


@pytest.mark.parametrize(
    ("told", "time"),
    [
        (b"2026-11-21T12:00:00.5Z", b"2026-11-21T12:00:00.500000000Z"),
        (b"2026-11-21T12:00:00Z", b"2026-11-21T12:00:00.000000000Z"),
        (b"2026-11-21T14:00:00.123456789+02:00", b"2026-11-21T12:00:00.123456789Z"),
        (b"2026-11-20T23:30:00.1-12:30", b"2026-11-21T12:00:00.100000000Z"),
    ],
)
def test_every_form_of_time_becomes_one(told: bytes, time: bytes) -> None:
    assert _PodRecords(b"").made(told + b" hello\n") == time + b" F hello\n"


def test_streams_that_overlap_become_one() -> None:
    lines = [DAY + b"%d.5Z line %d\n" % (second, second) for second in range(6)]
    records = _PodRecords(b"")
    found = records.made(b"".join(lines[:3]))
    records = _PodRecords(records.last)
    found += records.made(b"".join(lines[2:4])) + records.made(b"".join(lines[4:]))
    assert text_of(found) == "".join(f"line {second}\n" for second in range(6))


def test_who_goes_on_from_a_time_gets_what_came_after_it() -> None:
    records = _PodRecords(DAY + b"1.500000000Z")
    found = records.made(b"".join(DAY + b"%d.5Z line %d\n" % (s, s) for s in (1, 2)))
    assert text_of(found) == "line 2\n"


def test_a_clock_that_is_set_back_loses_no_line_of_a_stream() -> None:
    records = _PodRecords(b"")
    made = records.made(DAY + b"5Z one\n" + DAY + b"1Z two\n" + DAY + b"1Z three\n" + DAY + b"6Z four\n")
    assert text_of(made) == "one\ntwo\nthree\nfour\n"
    assert times(made) == sorted(set(times(made)))


def test_a_long_line_that_comes_in_pieces_is_one_line() -> None:
    records, line = _PodRecords(b""), b"x" * (3 * LONGEST_PART)
    made = records.made(DAY + b"1Z " + line) + records.made(line + b"\n") + records.made(DAY + b"2Z end\n")
    assert text_of(made) == (line * 2).decode() + "\nend\n"
    assert max(map(len, records_of(made))) <= LONGEST_PART + TIME + 4
    assert times(made) == sorted(set(times(made)))


def test_the_words_of_kubelet_are_not_the_program_s() -> None:
    records = _PodRecords(b"")
    gone = b"rpc error: code = NotFound desc = an error occurred when try to find container"
    assert records.made(b"unable to retrieve container logs for containerd://1") == b""
    made = records.made(DAY + b"1Z half a line" + gone)
    assert text_of(made) == "half a line"

"""The kubelet's lines become records: in order, once each, and without the kubelet's own messages."""

import pytest

from job_tracker.backends.kubernetes.api_errors import NotFound
from job_tracker.backends.kubernetes.logs import _PodRecords
from job_tracker.logs.records import TIME, records_of, text_of
from job_tracker.logs.writing import LONGEST_PART

DAY = b"2026-11-21T12:00:0"


def times(piece: bytes) -> list[str]:
    return [record[TIME - 14 : TIME].decode() for record in records_of(piece)]


@pytest.mark.parametrize(
    ("sent", "time"),
    [
        (b"2026-11-21T12:00:00.5Z", b"2026-11-21T12:00:00.500000000Z"),
        (b"2026-11-21T12:00:00Z", b"2026-11-21T12:00:00.000000000Z"),
        (b"2026-11-21T14:00:00.123456789+02:00", b"2026-11-21T12:00:00.123456789Z"),
        (b"2026-11-20T23:30:00.1-12:30", b"2026-11-21T12:00:00.100000000Z"),
    ],
)
def test_all_formats_of_times_are_normalized(sent: bytes, time: bytes) -> None:
    assert _PodRecords(b"").made(sent + b" hello\n") == time + b" F hello\n"


def test_overlapping_streams_are_merged() -> None:
    lines = [DAY + b"%d.5Z line %d\n" % (second, second) for second in range(6)]
    records = _PodRecords(b"")
    found = records.made(b"".join(lines[:3]))
    records = _PodRecords(records.last)
    found += records.made(b"".join(lines[2:4])) + records.made(b"".join(lines[4:]))
    assert text_of(found) == "".join(f"line {second}\n" for second in range(6))


def test_reading_from_a_time_returns_only_later_lines() -> None:
    records = _PodRecords(DAY + b"1.500000000Z")
    found = records.made(b"".join(DAY + b"%d.5Z line %d\n" % (s, s) for s in (1, 2)))
    assert text_of(found) == "line 2\n"


def test_no_line_is_lost_when_the_clock_is_set_back() -> None:
    records = _PodRecords(b"")
    made = records.made(DAY + b"5Z one\n" + DAY + b"1Z two\n" + DAY + b"1Z three\n" + DAY + b"6Z four\n")
    assert text_of(made) == "one\ntwo\nthree\nfour\n"
    assert times(made) == sorted(set(times(made)))


def test_a_long_line_in_pieces_remains_one_line() -> None:
    records, line = _PodRecords(b""), b"x" * (3 * LONGEST_PART)
    made = records.made(DAY + b"1Z " + line) + records.made(line + b"\n") + records.made(DAY + b"2Z end\n")
    assert text_of(made) == (line * 2).decode() + "\nend\n"
    assert max(map(len, records_of(made))) <= LONGEST_PART + TIME + 4
    assert times(made) == sorted(set(times(made)))


def test_messages_of_the_kubelet_are_not_program_output() -> None:
    records = _PodRecords(b"")
    gone = b"rpc error: code = NotFound desc = an error occurred when try to find container"
    assert records.made(b"failed to watch file") == b""
    made = records.made(DAY + b"1Z half a line" + gone)
    assert text_of(made) == "half a line"


@pytest.mark.parametrize(
    "message",
    [
        b"unable to retrieve container logs for containerd://3ded5303",
        b'failed to try resolving symlinks in path "/var/log/pods/a/0.log": no such file or directory',
    ],
)
def test_the_log_of_a_removed_container_is_gone_and_not_empty(message: bytes) -> None:
    with pytest.raises(NotFound, match="removed with its container"):
        _PodRecords(b"").made(message)
    printed = DAY + b"1.500000000Z " + message + b"\n"
    assert _PodRecords(b"").made(printed).endswith(message + b"\n")
    assert _PodRecords(b"").made(message + b"\n") == b"", "a line of the program is no answer of the kubelet"

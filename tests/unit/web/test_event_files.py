"""Event files as TensorBoard reads them: records with checksums, and messages of its schema."""

import math
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from job_tracker.domain.telemetry import MetricSeries, SeriesPoint
from training_service.web.event_files import content_of, crc32c, event_files, masked, record

NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)
DOUBLE, FLOAT, INT64, STRING, MESSAGE = 1, 2, 3, 9, 11
SCHEMA = {
    "Value": [("tag", 1, STRING, ""), ("simple_value", 2, FLOAT, "")],
    "Summary": [("value", 1, MESSAGE, "Value")],
    "Event": [
        ("wall_time", 1, DOUBLE, ""),
        ("step", 2, INT64, ""),
        ("file_version", 3, STRING, ""),
        ("summary", 5, MESSAGE, "Summary"),
    ],
}
"""The part of tensorflow/core/util/event.proto that the files use."""


def events_of(content: bytes) -> Iterator[Any]:
    """Parse a file with the library of Protocol Buffers, and check its checksums."""
    file = descriptor_pb2.FileDescriptorProto(name="event.proto", package="tensorflow", syntax="proto3")
    for message, fields in SCHEMA.items():
        made = file.message_type.add(name=message)
        for name, number, kind, of in fields:
            label = 3 if name == "value" else 1
            made.field.add(
                name=name,
                number=number,
                type=kind,
                label=label,
                type_name=f".tensorflow.{of}" if of else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    event = message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Event"))
    while content:
        [length] = struct.unpack("<Q", content[:8])
        body, rest = content[12 : 12 + length], content[12 + length :]
        assert struct.unpack("<I", content[8:12]) == (masked(content[:8]),)
        assert struct.unpack("<I", rest[:4]) == (masked(body),)
        yield event.FromString(body)
        content = rest[4:]


def series(name: str, *points: tuple[int, int, float]) -> MetricSeries:
    """Return a series of points: attempt, step, value."""
    return MetricSeries(
        name,
        tuple(SeriesPoint(attempt, step, NOON + timedelta(seconds=step), v) for attempt, step, v in points),
    )


@pytest.mark.parametrize(
    ("content", "checksum"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # RFC 3720, B.4
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_the_checksum_is_that_of_castagnoli(content: bytes, checksum: int) -> None:
    assert crc32c(content) == checksum


def test_a_record_begins_as_those_of_tensorflow() -> None:
    version = b"\x09" + bytes(8) + b"\x1a\x0dbrain.Event:2"
    assert record(version).startswith(b"\x18" + bytes(7) + b'\xa3\x7fK"\x09')


def test_a_file_has_its_version_and_then_the_values() -> None:
    found = dict(
        event_files("1-first", [series("loss", (1, 0, 1.5), (1, 1, 0.5)), series("lr", (1, 1, 0.25))])
    )
    [(path, content)] = found.items()
    assert path == f"1-first/events.out.tfevents.{int(NOON.timestamp())}.training-service"
    first, *events = events_of(b"".join(content))
    assert first.file_version == "brain.Event:2"
    assert [(event.step, event.wall_time) for event in events] == [
        (0, NOON.timestamp()),
        (1, NOON.timestamp() + 1),
    ]
    values = [[(value.tag, value.simple_value) for value in event.summary.value] for event in events]
    assert values == [[("loss", 1.5)], [("loss", 0.5), ("lr", 0.25)]]


def test_each_attempt_is_a_run_of_its_own() -> None:
    found = event_files("7-x", [series("loss", (1, 0, 1.0), (1, 5, 0.5), (3, 4, 0.4))])
    steps = {
        path.partition("/")[0]: [e.step for e in events_of(b"".join(content))] for path, content in found
    }
    assert steps == {"7-x": [0, 0, 5], "7-x-attempt-3": [0, 4]}


def test_values_that_are_not_finite_or_too_large_stay_values() -> None:
    given = (math.nan, math.inf, -math.inf, 1e300, -1e300, 3.4e38)
    points = [(1, step, value) for step, value in enumerate(given)]
    [(_, content)] = event_files("1", [series("loss", *points)])
    found = [
        event.summary.value[0].simple_value for event in events_of(b"".join(content)) if event.summary.value
    ]
    assert math.isnan(found[0])
    assert found[1:5] == [math.inf, -math.inf, math.inf, -math.inf]
    assert found[5] == pytest.approx(3.4e38)


def test_names_of_all_scripts_and_large_steps_are_kept() -> None:
    [(_, content)] = event_files("1", [series("verlust/ä <b>", (1, 2**30, 1.0))])
    _, event = events_of(b"".join(content))
    assert (event.summary.value[0].tag, event.step) == ("verlust/ä <b>", 2**30)


def test_a_long_file_comes_in_pieces() -> None:
    rows = [(step, float(step), "loss", 1.0) for step in range(10_000)]
    pieces = list(content_of(rows))
    assert len(pieces) > 3
    assert sum(1 for _ in events_of(b"".join(pieces))) == 10_001


def test_a_job_without_metrics_has_no_file() -> None:
    assert list(event_files("1", [])) == []

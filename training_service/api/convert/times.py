"""Times and durations in messages."""

from datetime import UTC, datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from job_tracker.domain.errors import InvalidField


def seconds(duration: Duration) -> float:
    """Return a duration as a number of seconds."""
    return duration.seconds + duration.nanos / 1e9


def duration_of(span: timedelta | None) -> Duration:
    """Return the message of a duration. None (no deadline) becomes 0."""
    duration = Duration()
    duration.FromTimedelta(span or timedelta(0))
    return duration


def timestamp(moment: datetime | None) -> Timestamp | None:
    """Return the message of a time. None stays None."""
    if moment is None:
        return None
    return Timestamp(seconds=int(moment.timestamp()), nanos=moment.microsecond * 1000)


def moment(field: str, timestamp: Timestamp) -> datetime:
    """Return the time of the message in UTC.

    Raises InvalidField for `field` if no datetime can be so early or late.
    """
    try:
        return timestamp.ToDatetime(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidField(
            field,
            f"{timestamp.seconds} s, {timestamp.nanos} ns is not allowed; send a time from year 1 to 9999",
        ) from error


def time_of(at: float) -> datetime | None:
    """Return a Unix time as a datetime in UTC; None if no datetime can be so early or late."""
    try:
        return datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError, OSError):
        return None

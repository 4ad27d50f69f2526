"""Results of concurrent calls to an engine, and the output of a command."""

from collections.abc import AsyncGenerator

import pytest

from job_tracker.backends.shared.gathering import beginning_of


@pytest.mark.parametrize(
    ("most_bytes", "expected", "pieces_read"), [(3, b"abc", 1), (4, b"abcd", 2), (9, b"abcdef", 3)]
)
async def test_an_output_is_read_up_to_its_bound_and_closed(
    most_bytes: int, expected: bytes, pieces_read: int
) -> None:
    events: list[str] = []

    async def output() -> AsyncGenerator[bytes, None]:
        try:
            for piece in (b"abc", b"def"):
                events.append("read")
                yield piece
            events.append("read")  # the end
        finally:
            events.append("closed")

    assert await beginning_of(output(), most_bytes) == expected
    assert events == ["read"] * pieces_read + ["closed"]

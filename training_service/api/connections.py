"""Bounds on connections and calls to the gRPC server: strangers must not use up its descriptors or memory.

Each option was tried with gRPC 1.85; `tests/security/test_connections.py` and `test_memory.py` show what
they do. Others do not help: `max_connection_idle_ms` breaks a connection with an error, which a call that
begins at that moment sees and which clients print; `keepalive_timeout_ms` has no effect, as the time-out of
pings counts instead.
"""

_SHARE = 2
"""One in so many descriptors may be a connection; launches, logs and the store need the others."""

_STREAMS = 1000
_WAITING, _MOST_WAITING = 2000, 3000


def connection_options(
    descriptors: int,
    *,
    silence_seconds: float = 5,
    age_seconds: float = 300,
    ping_seconds: float = 120,
    answer_seconds: float = 20,
) -> list[tuple[str, int]]:
    """Options of a gRPC server that may have so many file descriptors open.

    A connection is closed if it has not begun to speak HTTP/2 after `silence_seconds`, and if its peer leaves
    a ping without an answer for `answer_seconds`; pings are sent after `ping_seconds` in which nothing came,
    while there are calls. After `age_seconds` (±10 %) a connection takes no new calls, and is closed as soon
    as those on it have ended: streams last as long as they like, and clients connect again by themselves.
    """
    return [
        ("grpc.max_allowed_incoming_connections", max(1, descriptors // _SHARE)),
        ("grpc.server_handshake_timeout_ms", _milliseconds(silence_seconds)),
        ("grpc.max_connection_age_ms", _milliseconds(age_seconds)),
        ("grpc.keepalive_time_ms", _milliseconds(ping_seconds)),
        ("grpc.http2.ping_timeout_ms", _milliseconds(answer_seconds)),
    ]


def call_options(largest_message: int) -> list[tuple[str, int]]:
    """Options that bound the memory of calls: a message may have so many bytes, also once it is decompressed.

    A connection may have `_STREAMS` calls open; clients keep further ones until some have ended. A call
    that no handler has taken yet costs some 14 KB, also when its client has reset it, which frees its
    place among those. Beyond `_WAITING` of them gRPC cancels some, beyond `_MOST_WAITING` all: so a
    client that sends thousands of calls at once is served, and hostile ones take about 40 MB.
    """
    return [
        ("grpc.max_receive_message_length", largest_message),
        ("grpc.max_concurrent_streams", _STREAMS),
        # Else streams that have ended count until they are freed, and calls of clients that obey are refused.
        ("grpc.http.overload_protection", 0),
        ("grpc.server.max_pending_requests", _WAITING),
        ("grpc.server.max_pending_requests_hard_limit", _MOST_WAITING),
    ]


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)

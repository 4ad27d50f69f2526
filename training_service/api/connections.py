"""Limits on connections and calls to the gRPC server, to protect its descriptors and memory.

Each option was tried with gRPC 1.85; `tests/security/test_connections.py` and `test_memory.py` show the
effects. Two other options do not help. `max_connection_idle_ms` closes a connection with an error, and a call
that begins at that moment gets the error. `keepalive_timeout_ms` has no effect, since `ping_timeout_ms`
applies in its place.
"""

_SHARE = 2  # connections may take half of the descriptors; launches, logs and the store need the rest

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
    """Return options of a gRPC server whose process can open `descriptors` files and sockets.

    A connection is closed if it does not start HTTP/2 within `silence_seconds`, or does not answer a ping
    within `answer_seconds`. Pings are sent during calls, after `ping_seconds` of silence. After `age_seconds`
    (±10 %) a connection takes no new calls, and is closed when its calls have ended. So streams are not
    interrupted. Clients reconnect by themselves.
    """
    return [
        ("grpc.max_allowed_incoming_connections", max(1, descriptors // _SHARE)),
        ("grpc.server_handshake_timeout_ms", _milliseconds(silence_seconds)),
        ("grpc.max_connection_age_ms", _milliseconds(age_seconds)),
        ("grpc.keepalive_time_ms", _milliseconds(ping_seconds)),
        ("grpc.http2.ping_timeout_ms", _milliseconds(answer_seconds)),
    ]


def call_options(largest_message: int) -> list[tuple[str, int]]:
    """Return options that bound the memory of calls. `largest_message` is in bytes, after decompression.

    A connection may have `_STREAMS` open calls; clients delay further ones. A call that waits for its handler
    takes about 14 KB, even after its client has reset the call. After the reset, the client may open another
    call. If more than `_WAITING` calls wait for their handlers, gRPC cancels some further calls; beyond
    `_MOST_WAITING`, it cancels all further calls. So a client that sends thousands of calls at the same time
    is served, and the waiting calls of hostile clients take at most about 40 MB of memory.
    """
    return [
        ("grpc.max_receive_message_length", largest_message),
        ("grpc.max_concurrent_streams", _STREAMS),
        # With overload protection, ended streams would count towards the limit until they are freed, and gRPC
        # would refuse calls that are within the limit.
        ("grpc.http.overload_protection", 0),
        ("grpc.server.max_pending_requests", _WAITING),
        ("grpc.server.max_pending_requests_hard_limit", _MOST_WAITING),
    ]


def _milliseconds(seconds: float) -> int:
    return round(1000 * seconds)

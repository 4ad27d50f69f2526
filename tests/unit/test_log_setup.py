"""The service's own log: the context of each line, and protection against forged lines."""

import asyncio
import io
import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import grpc
import pytest

from job_tracker.common.log_context import about, request_id
from tests.support.http2 import call_with
from training_service import log_setup as logs
from training_service.settings import LoggingSettings

FORGED = "x\n2026-11-21 12:00:00,000 ERROR   root the disk is on fire\r\n\x1b[2J\u2028\x85"
log = logging.getLogger("tests.lines")

LogTo = Callable[[Literal["console", "json"]], io.StringIO]


@pytest.fixture
def log_to(monkeypatch: pytest.MonkeyPatch) -> Iterator[LogTo]:
    """Set up the log in a format, and return the stream that it is written to."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]

    def set_up(form: Literal["console", "json"]) -> io.StringIO:
        written = io.StringIO()
        with monkeypatch.context() as patched:
            patched.setattr("sys.stderr", written)
            logs.set_up(LoggingSettings(format=form))
        return written

    root.handlers = []
    yield set_up
    root.handlers = handlers
    root.setLevel(level)


def only(written: io.StringIO) -> dict[str, Any]:
    (line,) = written.getvalue().splitlines()
    record: dict[str, Any] = json.loads(line)
    return record


def test_a_line_has_the_job_attempt_and_request(log_to: LogTo) -> None:
    written = log_to("json")
    token = request_id.set("a-request-with-a-long-id")
    with about(7, 2):
        log.info("stopping")
    request_id.reset(token)
    record = only(written)
    assert (record["job"], record["attempt"], record["request_id"]) == (7, 2, "a-request-with-a-long-id")
    assert (record["level"], record["logger"], record["message"]) == ("INFO", "tests.lines", "stopping")


def test_the_console_shows_the_context_shortened(log_to: LogTo) -> None:
    written = log_to("console")
    token = request_id.set("a-request-with-a-long-id")
    with about(7, 2):
        log.info("stopping")
    request_id.reset(token)
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
    assert re.fullmatch(
        rf"{time} INFO    tests\.lines \[job=7 attempt=2 request_id=a-reques\] stopping\n", written.getvalue()
    )


def test_unknown_context_is_left_out(log_to: LogTo) -> None:
    written = log_to("json")
    log.info("serving")
    assert only(written).keys() == {"time", "level", "logger", "message"}
    with about(7):
        log.info("submitted")
    assert "attempt" not in json.loads(written.getvalue().splitlines()[1])
    written = log_to("console")
    log.info("serving")
    assert written.getvalue().endswith("tests.lines serving\n")


async def test_concurrent_work_on_jobs_keeps_its_context(log_to: LogTo) -> None:
    written, ready = log_to("json"), asyncio.Barrier(8)

    async def work(job_id: int) -> None:
        with about(job_id):
            await ready.wait()
            log.info("work on %d", job_id)

    await asyncio.gather(*(work(job_id) for job_id in range(1, 9)))
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    assert len(lines) == 8
    assert all(line["message"] == f"work on {line['job']}" for line in lines)


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_message_stays_on_its_line(log_to: LogTo, form: Literal["console", "json"]) -> None:
    written = log_to(form)
    log.info("refused: %s", FORGED)
    (line,) = written.getvalue().splitlines()
    assert line.isprintable()
    assert r"\x1b[2J" in line


def test_lines_of_a_traceback_are_marked(log_to: LogTo) -> None:
    written = log_to("console")
    try:
        raise RuntimeError(FORGED)
    except RuntimeError:
        log.exception("it failed")
    first, *others = written.getvalue().splitlines()
    assert first.endswith("it failed")
    assert len(others) > 3
    for line in others:
        assert line.startswith("    | ")
        assert line.isprintable()


def test_a_traceback_is_part_of_its_record(log_to: LogTo) -> None:
    written = log_to("json")
    try:
        raise RuntimeError(FORGED)
    except RuntimeError:
        log.exception("it failed")
    assert "RuntimeError: x\n2026" in only(written)["exception"]


async def test_metadata_that_is_not_utf_8_is_not_in_the_log(log_to: LogTo) -> None:
    secret = b"tst_abcdefgh_" + b"s" * 43

    async def answer(request: bytes, context: Any) -> bytes:
        assert [value for key, value in context.invocation_metadata() if key == "authorization"]
        return request

    server = grpc.aio.server()
    handlers: dict[str, Any] = {"B": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    written = log_to("console")
    sent = [(b"authorization", b"Bearer " + secret + b"\xff")]
    assert await asyncio.to_thread(call_with, f"127.0.0.1:{port}", "/a/B", sent)
    await server.stop(None)
    assert written.getvalue() == ""
    logging.getLogger(logs.GRPC_LOGGER).error("another error of gRPC")
    assert "another error of gRPC" in written.getvalue()

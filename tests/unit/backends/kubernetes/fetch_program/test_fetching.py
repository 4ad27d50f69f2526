"""The program of the init container: what it writes, what it tries again, and how it explains a failure."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from job_tracker.backends.kubernetes import fetch_program
from tests.support.trees import manifest_of, sha256_of
from training_service._generated import training_reporter_pb2 as pb

FILES = {"a/run.sh": b"#!/bin/sh\n", "empty": b"", "train.py": b"print()" * 50_000, "größe.txt": "é".encode()}
TREE, MANIFEST = manifest_of(FILES)
WHOLE = MANIFEST + b"\n" + b"".join(FILES[path] for path in sorted(FILES, key=str.encode))
Answer = bytes | grpc.StatusCode
Serve = Callable[..., list[Any]]


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep what the program changes in its process from the tests, and do not wait between tries."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setenv("REPORT_TOKEN", "the-token")
    monkeypatch.delenv("REPORT_CA", raising=False)
    umask = os.umask(0o022)
    yield
    os.umask(umask)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Return a function that starts a service with these answers, one for each call."""
    servers = []
    threads = ThreadPoolExecutor(2)

    def start(*answers: Answer, piece: int = 100_000) -> list[Any]:
        calls: list[Any] = []

        def answer(_: bytes, context: Any) -> Iterator[bytes]:
            calls.append(dict(context.invocation_metadata())["authorization"])
            now = answers[min(len(calls), len(answers)) - 1]
            if isinstance(now, grpc.StatusCode):
                context.abort(now, "the reason")
                return
            for begin in range(0, len(now), piece):
                yield pb.FetchProgramResponse(content=now[begin : begin + piece]).SerializeToString()

        handler: Any = grpc.unary_stream_rpc_method_handler(answer)
        server = grpc.server(threads)
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("training.TrainingReporter", {"FetchProgram": handler})]
        )
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        servers.append(server)
        monkeypatch.setenv("REPORT_ADDRESS", f"127.0.0.1:{port}")
        return calls

    yield start
    for server in servers:
        server.stop(None).wait()
    threads.shutdown()


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("piece", [1_000_000, 70, 1])
def test_it_writes_the_files_for_any_user(serve: Serve, tmp_path: Path, piece: int) -> None:
    small = {path: content[:30] for path, content in FILES.items()}
    tree, manifest = manifest_of(small)
    whole = manifest + b"\n" + b"".join(small[path] for path in sorted(small, key=str.encode))
    calls = serve(WHOLE if piece == 1_000_000 else whole, piece=piece)
    assert fetch_program.main(str(tmp_path / "work"), TREE if piece == 1_000_000 else tree) == 0
    assert files_in(tmp_path) == {
        f"work/{path}": content for path, content in (FILES if piece == 1_000_000 else small).items()
    }
    assert (tmp_path / "work/a").stat().st_mode & 0o777 == 0o777
    assert (tmp_path / "work/a/run.sh").stat().st_mode & 0o777 == 0o777
    assert (tmp_path / "work/train.py").stat().st_mode & 0o777 == 0o666
    assert calls == ["Bearer the-token"]


OTHER = WHOLE.replace(b"print()", b"attack)", 1)


@pytest.mark.parametrize(
    "first",
    [
        WHOLE[:-1],
        WHOLE[: len(MANIFEST) - 5],
        b"",
        OTHER,
        b"644 1 " + sha256_of(b"x").encode() + b" ../x\n\nx",
        *(grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED),
    ],
    ids=["cut", "cut in the manifest", "empty", "another content", "another tree", "away", "busy", "ended"],
)
def test_it_begins_again_after_what_may_pass(serve: Serve, tmp_path: Path, first: Answer) -> None:
    calls = serve(first, first, WHOLE)
    assert fetch_program.main(str(tmp_path / "work"), TREE) == 0
    assert len(calls) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"work"}
    assert files_in(tmp_path / "work") == FILES


def test_a_repeated_run_begins_anew(serve: Serve, tmp_path: Path) -> None:
    serve(WHOLE)
    for name in ("work", "work.part"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "left").write_text("of an earlier run")
    assert fetch_program.main(str(tmp_path / "work"), TREE) == 0
    assert files_in(tmp_path) == {f"work/{path}": content for path, content in FILES.items()}


@pytest.mark.parametrize(
    "code",
    [grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INVALID_ARGUMENT],
)
def test_a_refusal_ends_it_at_once_with_the_reason(
    serve: Serve, tmp_path: Path, code: grpc.StatusCode, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = serve(code)
    assert fetch_program.main(str(tmp_path / "work"), TREE) == fetch_program.REFUSED
    assert len(calls) == 1
    assert f"{code.name}: the reason" in (said := capsys.readouterr().err)
    assert "the-token" not in said
    assert not (tmp_path / "work").exists()


def test_it_gives_up_after_a_while(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(OTHER)
    monkeypatch.setattr(fetch_program, "_PATIENCE_SECONDS", 0.0)
    assert fetch_program.main(str(tmp_path / "work"), TREE) == fetch_program.UNREACHABLE
    assert "sent for train.py does not match its hash" in capsys.readouterr().err
    assert not (tmp_path / "work").exists()


def test_a_disk_that_takes_nothing_is_named(
    serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(WHOLE)
    (tmp_path / "file").write_text("")
    assert fetch_program.main(str(tmp_path / "file" / "work"), TREE) == fetch_program.NOT_WRITTEN
    assert "cannot be written" in capsys.readouterr().err


def test_an_image_without_grpc_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    assert fetch_program.main(str(tmp_path / "work"), TREE) == fetch_program.NO_GRPC
    assert "this image cannot fetch the program" in capsys.readouterr().err


@pytest.mark.parametrize("message", [b"\x12\x01x", b"\n\x05x", b"\n", b"", b"\n\xff\xff\xff\xff\xff\x01"])
def test_a_message_of_another_form_is_not_taken_for_content(message: bytes) -> None:
    with pytest.raises(fetch_program.Broken):
        fetch_program._content(message)


@pytest.mark.parametrize("size", [1, 127, 128, 70_000, 1 << 21])
def test_messages_of_protobuf_are_read(size: int) -> None:
    content = os.urandom(size)
    assert fetch_program._content(pb.FetchProgramResponse(content=content).SerializeToString()) == content

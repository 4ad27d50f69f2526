"""The cache of the init container: what it saves, and that its faults reach no program."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from job_tracker.backends.kubernetes import fetch_program
from tests.support.patience import PATIENCE
from tests.support.trees import manifest_of, sha256_of
from training_service._generated import training_reporter_pb2 as pb

FILES = {"a/run.sh": b"#!/bin/sh\n", "empty": b"", "train.py": b"print()" * 50_000}
TREE, MANIFEST = manifest_of(FILES)
CONTENTS = b"".join(FILES[path] for path in sorted(FILES))
TRAIN = sha256_of(FILES["train.py"])
Fetch = Callable[..., int]


class Service:
    """Answers FetchProgram, and keeps whether each call asked for the contents."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.refusal: grpc.StatusCode | None = None

    def answer(self, request: bytes, context: Any) -> Iterator[bytes]:
        only = pb.FetchProgramRequest.FromString(request).manifest_only
        self.asked.append("manifest" if only else "all")
        if self.refusal:
            context.abort(self.refusal, "the reason")
        whole = MANIFEST + b"\n" + (b"" if only else CONTENTS)
        for begin in range(0, len(whole), 100_000):
            yield pb.FetchProgramResponse(content=whole[begin : begin + 100_000]).SerializeToString()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    answering = Service()
    threads = ThreadPoolExecutor(4)
    server = grpc.server(threads)
    handler: Any = grpc.unary_stream_rpc_method_handler(answering.answer)
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("training.TrainingReporter", {"FetchProgram": handler})]
    )
    monkeypatch.setenv("REPORT_ADDRESS", f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    monkeypatch.setenv("REPORT_TOKEN", "the-token")
    monkeypatch.delenv("REPORT_CA", raising=False)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    umask = os.umask(0o022)
    server.start()
    yield answering
    server.stop(None).wait()
    threads.shutdown()
    os.umask(umask)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder


@pytest.fixture
def fetch(service: Service, cache: Path, tmp_path: Path) -> Fetch:
    def run(pod: str, project: str = "vision", max_bytes: int = 1 << 30) -> int:
        arguments = (str(tmp_path / pod), TREE, str(cache), project, str(max_bytes))
        code = fetch_program.main(*arguments)
        if code == 0:
            assert files_in(tmp_path / pod) == FILES
            assert (tmp_path / pod / "a/run.sh").stat().st_mode & 0o777 == 0o777
        return code

    return run


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_second_pod_gets_no_contents(fetch: Fetch, service: Service, cache: Path) -> None:
    assert fetch("first") == 0
    assert files_in(cache / "vision") == {sha256_of(content): content for content in FILES.values()}
    assert fetch("second") == 0
    assert service.asked == ["manifest", "all", "manifest"]


def test_another_project_does_not_get_them(fetch: Fetch, service: Service) -> None:
    assert fetch("first") == fetch("second", project="speech") == 0
    assert service.asked == ["manifest", "all"] * 2


def test_a_pod_without_the_right_gets_nothing(
    fetch: Fetch, service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch("first") == 0
    service.refusal = grpc.StatusCode.UNAUTHENTICATED
    assert fetch("second") == fetch_program.REFUSED
    assert not (tmp_path / "second").exists()
    assert not list((tmp_path / "second.part").iterdir())
    assert "the reason" in capsys.readouterr().err


@pytest.mark.parametrize("by", [b"attack()", FILES["train.py"][:-1], FILES["train.py"] + b"x", b""])
def test_another_content_is_replaced(
    fetch: Fetch, service: Service, cache: Path, capsys: pytest.CaptureFixture[str], by: bytes
) -> None:
    assert fetch("first") == 0
    (cache / "vision" / TRAIN).write_bytes(by)
    assert fetch("second") == fetch("third") == 0
    assert service.asked == ["manifest", "all"] * 2 + ["manifest"]
    assert f"the cached file {TRAIN} does not match its hash" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_only_a_regular_file_is_read(
    fetch: Fetch, service: Service, cache: Path, tmp_path: Path, kind: str
) -> None:
    assert fetch("first") == 0
    kept = cache / "vision" / TRAIN
    kept.unlink()
    kept.symlink_to(tmp_path / "first/train.py") if kind == "link" else os.mkfifo(kept)
    assert fetch("second") == 0
    assert service.asked[2:] == ["manifest", "all"]


def test_a_full_volume_is_said_once_and_nothing_else(
    fetch: Fetch,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def half(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:5])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    monkeypatch.setattr(shutil, "copyfile", half)
    assert fetch("first") == 0
    assert capsys.readouterr().err.count("the cache of programs is not used: [Errno 28]") == 1
    assert not files_in(cache)


@pytest.mark.parametrize("root", ["file", "missing"])
def test_a_cache_that_cannot_be_written_is_not_used(
    service: Service, tmp_path: Path, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert fetch_program.main(str(tmp_path / "work"), TREE, str(tmp_path / root), "vision", "1000") == 0
    assert files_in(tmp_path / "work") == FILES
    assert "the cache of programs is not used" in capsys.readouterr().err
    assert service.asked[-1] == "all"


def test_a_pod_that_is_killed_while_it_keeps_a_file_leaves_no_content(
    fetch: Fetch, service: Service, cache: Path, tmp_path: Path
) -> None:
    program = (
        "import os, shutil, signal, sys; from job_tracker.backends.kubernetes import fetch_program\n"
        "def half(source, target):\n"
        "    target.write_bytes(source.read_bytes()[:5]); os.kill(os.getpid(), signal.SIGKILL)\n"
        "shutil.copyfile = half; fetch_program.main(*sys.argv[1:])"
    )
    arguments = (str(tmp_path / "killed"), TREE, str(cache), "vision", "1000000")
    killed = subprocess.run([sys.executable, "-c", program, *arguments], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert all(path.name.startswith(".") for path in (cache / "vision").iterdir())
    assert fetch("next") == 0
    assert service.asked == ["manifest", "all"] * 2


def test_what_was_not_used_for_the_longest_time_is_removed_once_an_hour(fetch: Fetch, cache: Path) -> None:
    other = cache / "speech"
    other.mkdir()
    now, hour = time.time(), 3600
    for name, hours in (("oldest", 9), ("older", 8), (".left-over", 7), ("used", 0.5)):
        (other / name).write_bytes(bytes(1000))
        os.utime(other / name, (now - hours * hour, now - hours * hour))
    limit = sum(map(len, FILES.values())) + 2500
    assert fetch("first", max_bytes=limit) == 0
    assert {path.name for path in other.iterdir()} == {"used"}
    (other / "large").write_bytes(bytes(9000))
    assert fetch("second", max_bytes=limit) == 0
    assert (other / "large").exists()
    os.utime(cache / ".tidied", (now - 2 * hour, now - 2 * hour))
    os.utime(other / "large", (now - 2 * hour, now - 2 * hour))
    assert fetch("third", max_bytes=limit) == 0
    assert {path.name for path in other.iterdir()} == {"used"}


def test_a_use_is_noticed(fetch: Fetch, cache: Path) -> None:
    assert fetch("first") == 0
    kept = cache / "vision" / TRAIN
    os.utime(kept, (1, 1))
    assert fetch("second") == 0
    assert time.time() - kept.stat().st_mtime < 600


def test_pods_of_a_node_that_start_at_once_all_get_the_files(
    fetch: Fetch, cache: Path, tmp_path: Path
) -> None:
    command = [sys.executable, fetch_program.__file__]
    pods = [
        subprocess.Popen([*command, str(tmp_path / f"pod-{rank}"), TREE, str(cache), "vision", "1000000"])
        for rank in range(3)
    ]
    assert [pod.wait(PATIENCE) for pod in pods] == [0, 0, 0]
    assert all(files_in(tmp_path / f"pod-{rank}") == FILES for rank in range(3))
    assert set(files_in(cache / "vision")) == {sha256_of(content) for content in FILES.values()}
    assert fetch("next") == 0

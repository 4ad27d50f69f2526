"""Files of the job store are removed or replaced while jobs are submitted: no job is lost silently."""

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import psutil
import pytest

from tests.support.patience import PATIENCE
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub

if TYPE_CHECKING:
    from tests.support.server import Server
else:
    Server = Any

CANNOT_SERVE = 2
FOREVER = {"RUN_SECONDS": "forever"}
UNLIMITED = 1_000_000


class Submissions:
    """Threads that submit jobs until the service no longer answers, or until `end`."""

    def __init__(self, address: str, *, at_first: int = UNLIMITED, threads: int = 4) -> None:
        """Before `go_on` is called, the threads submit at most `at_first` jobs."""
        self._allowed = threading.Semaphore(at_first)
        self.acknowledged: list[int] = []
        self.refusals: list[tuple[grpc.StatusCode, str | None]] = []
        self._ended = threading.Event()
        self._some = threading.Semaphore(0)
        self._channel = grpc.insecure_channel(address)
        self._threads = [threading.Thread(target=self._submit, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def await_some(self, number: int) -> None:
        """Wait until this number of further jobs is acknowledged."""
        for _ in range(number):
            assert self._some.acquire(timeout=PATIENCE), self.refusals

    def go_on(self) -> None:
        """Let the threads submit any number of jobs."""
        self._allowed.release(UNLIMITED)

    def end(self) -> list[int]:
        """Stop the threads, and return the acknowledged ids."""
        self._ended.set()
        self.go_on()
        for thread in self._threads:
            thread.join()
        self._channel.close()
        return self.acknowledged

    def _submit(self) -> None:
        stub = TrainingServiceStub(self._channel)
        metadata = pb.TrainingJobMetadata(
            algorithm="program", dataset_id="1", train_data_version_hash="v1", parameters=FOREVER
        )
        while self._allowed.acquire() and not self._ended.is_set():
            try:
                job_id = stub.Train(pb.TrainRequest(metadata=metadata), timeout=PATIENCE).job_id
            except grpc.RpcError as error:
                self.refusals.append((error.code(), error.details()))
                return
            self.acknowledged.append(job_id)
            self._some.release()


def removed(folder: Path) -> None:
    """Remove the folder, except for files that programs make in it during the removal."""
    shutil.rmtree(folder, ignore_errors=True)


def replaced(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").rename(path)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def file(name: str, how: Callable[[Path], object] = Path.unlink) -> Callable[[Path], object]:
    return lambda folder: how(folder / name)


WAYS: dict[str, tuple[Callable[[Path], object], str]] = {
    "rm -rf data_dir": (removed, "lost with jobs.db"),
    "rm jobs.db": (file("jobs.db"), "lost with jobs.db"),
    "rm jobs.db-wal": (file("jobs.db-wal"), "have been saved in jobs.db"),
    "rm jobs.db.lock": (file("jobs.db.lock"), "are safe in jobs.db"),
    ": > jobs.db": (file("jobs.db", emptied), "lost with jobs.db"),
    ": > jobs.db-wal": (file("jobs.db-wal", emptied), "are lost with jobs.db-wal"),
    "mv copy jobs.db": (file("jobs.db", replaced), "lost with jobs.db"),
}


@pytest.fixture
def data(tmp_path: Path, storage: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder separate from the configuration and the storage."""
    monkeypatch.setenv("TRAINING_SERVICE_STORAGE__URI", str(storage))
    monkeypatch.setenv("TRAINING_SERVICE_SCHEDULING__CAPACITY", "1")
    return tmp_path / "data"


@pytest.fixture
def service(make_server: Callable[[str], Server], data: Path) -> Iterator[Server]:
    """A service on that folder. The service and its running job are ended afterwards."""
    made = make_server("service")
    made.data_dir = data
    yield made
    if made.process is not None and made.process.poll() is None:
        made.end(signal.SIGKILL)
    for process in made.ranks():
        with suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.mark.parametrize("way", WAYS)
def test_no_acknowledged_job_is_lost_silently(service: Server, data: Path, way: str) -> None:
    vanish, says = WAYS[way]
    service.start().close()
    # With more than about 90 jobs, SQLite would move the content of jobs.db-wal to jobs.db.
    stream = Submissions(service.address, at_first=50 if way == ": > jobs.db-wal" else UNLIMITED)
    stream.await_some(50)
    vanish(data)
    stream.go_on()
    assert service.process is not None
    code = service.process.wait(timeout=PATIENCE)
    acknowledged = stream.end()
    log = service.log.read_text()
    assert {code for code, _ in stream.refusals} == {grpc.StatusCode.UNAVAILABLE}
    assert code == CANNOT_SERVE, log
    assert "CRITICAL" in log
    assert says in log.splitlines()[-1]
    if says == "lost with jobs.db" and data.exists():
        if not (data / "jobs.db").exists() or way == ": > jobs.db":
            # The service may have made a folder in the data folder during its removal.
            has_log = (data / "jobs.db-wal").exists()
            why = "is gone, but jobs.db-wal still exists" if has_log else "does not exist, but jobs have used"
            assert f"jobs.db: {why}" in service.refused()
        return
    if "are lost" in says:
        assert "never had a job, but jobs have used" in service.refused()
        return
    with service.start() as client:
        if says != "lost with jobs.db":
            assert {job.job_id for job in client.list()} >= set(acknowledged)


def test_an_idle_service_also_notices_the_loss(service: Server, data: Path) -> None:
    service.start().close()
    removed(data)
    assert service.process is not None
    assert service.process.wait(timeout=PATIENCE) == CANNOT_SERVE
    assert "lost with jobs.db" in service.log.read_text().splitlines()[-1]


def test_a_second_service_in_the_same_folder_ends_the_first(
    service: Server, make_server: Callable[[str], Server], data: Path
) -> None:
    service.start().close()
    removed(data)
    second = make_server("second")
    second.data_dir = data
    with second.start() as client:
        assert service.process is not None
        assert service.process.wait(timeout=PATIENCE) == CANNOT_SERVE
        # The first service has not removed any file of the second.
        job = client.submit("program", "1", "v1", parameters=FOREVER)
    assert second.end(signal.SIGKILL) == -signal.SIGKILL
    with second.start() as client:
        assert client.status(job).job_id == job
        client.cancel(job)
        client.wait(job)
    assert second.end(signal.SIGTERM) == 0


def test_a_service_with_an_emptied_store_does_not_touch_running_jobs(service: Server, data: Path) -> None:
    with service.start() as client:
        job = client.submit("program", "1", "v1", parameters=FOREVER)
        for status in client.watch(job):
            if status.status == pb.running:
                break
    rank = service.rank(job, 0)
    service.end(signal.SIGTERM)
    (data / "jobs.db").rename(data / "away.db")
    assert "jobs have used" in service.refused()
    assert rank.is_running()
    # The new store has separate groups.
    with service.start("-s", "storage.start_anew=true") as client:
        again = client.submit("program", "1", "v1")
        ended = client.wait(again)
        assert (again, ended.status) == (job, pb.succeed)
        assert "default/" in ended.model_uri
    service.end(signal.SIGTERM)
    assert rank.is_running()
    assert "ignoring 1 groups of job stores other than" in service.log.read_text()
    (data / "away.db").rename(data / "jobs.db")
    with service.start() as client:
        assert client.status(job).status == pb.running
        assert client.status(job).model_uri != ended.model_uri
        client.cancel(job)
        assert client.wait(job).status == pb.cancelled
    assert not rank.is_running()

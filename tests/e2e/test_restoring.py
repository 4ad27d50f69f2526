"""The job store is backed up while jobs run, lost, and restored: each job ends as expected, exactly once."""

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.support.parameters import declared
from tests.support.patience import PATIENCE
from tests.support.redis_server import RedisServer
from tests.support.server import run_within
from training_service._generated import training_service_pb2 as pb
from training_service.client import NotFound, TrainingClient

if TYPE_CHECKING:
    from tests.support.server import Server
else:
    Server = Any

CAPACITY = 4
# Each run of a rank writes a line at its start and at its end. It holds a lock, which detects a concurrent
# second run of any attempt. With a GATE it runs until that file exists.
PROGRAM = """
import fcntl, os, sys, time
from pathlib import Path

job, attempt, rank, folder = (os.environ[name] for name in ("JOB_ID", "JOB_ATTEMPT", "RANK", "RECORD"))

def note(what):
    with open(f"{folder}/runs", "a") as file:
        file.write(f"{job} {attempt} {rank} {what}\\n")

lock = open(f"{folder}/{job}-{rank}.lock", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    note("overlaps")
    sys.exit(1)
note("began")
while (gate := os.environ.get("GATE")) and not Path(gate).exists():
    time.sleep(0.01)
time.sleep(float(os.environ.get("RUN_SECONDS", "0")))
note("ended")
"""


class Restorable:
    """A service whose store is backed up and lost, and the record of its ranks."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.record = folder / "record"
        self.record.mkdir()
        (folder / "program.py").write_text(PROGRAM)
        (folder / "config.toml").write_text(
            f"[algorithms.program]\n{declared(('GATE', 'RECORD', 'RUN_SECONDS'))}\n"
            f'[algorithms.program.process]\ncommand = ["python", "{folder / "program.py"}"]\n'
        )

    def gate(self, name: str) -> Path:
        return self.folder / f"gate-{name}"

    def submit(self, client: TrainingClient, gate: str = "", **parameters: str) -> int:
        if gate:
            parameters["GATE"] = str(self.gate(gate))
        return client.submit("program", "1", "v1", parameters={"RECORD": str(self.record), **parameters})

    def command(self, name: str, *arguments: str, data_dir: Path | None = None) -> tuple[int, str]:
        """Run `training-service NAME` on this service's store. Return the exit code and the output."""
        argv = [name, *arguments, "--data-dir", str(data_dir or self.server.data_dir)]
        argv += ["--config", str(self.folder / "config.toml")]
        done = run_within(PATIENCE, argv, os.environ)
        return done.returncode, done.stdout + done.stderr

    def backed_up(self) -> Path:
        target = self.folder / "backup.db"
        assert self.command("backup", str(target))[0] == 0
        return target

    def lose(self) -> None:
        """Kill the service and remove its store. Groups continue to run."""
        self.server.end(signal.SIGKILL)
        for file in self.server.data_dir.glob("jobs.db*"):
            file.unlink()

    def restored(self, backup: Path) -> str:
        code, said = self.command("restore", str(backup))
        assert code == 0, said
        return said

    def runs(self) -> Counter[tuple[str, ...]]:
        """Count the events by job, attempt and rank."""
        file = self.record / "runs"
        return (
            Counter(tuple(line.split()) for line in file.read_text().splitlines())
            if file.exists()
            else Counter()
        )

    def attempts_of(self, job_id: int, what: str = "began") -> list[int]:
        """Return the numbers of the attempts of a job with one rank, once for each event `what`."""
        found = ((int(key[0]), int(key[1]), key[3], count) for key, count in self.runs().items())
        return sorted(
            attempt
            for job, attempt, did, count in found
            if (job, did) == (job_id, what)
            for _ in range(count)
        )


@pytest.fixture
def service(
    make_server: Callable[[str], Server], tmp_path: Path, storage: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Restorable]:
    """A service on an empty data folder. All its processes are killed afterwards."""
    monkeypatch.setenv("TRAINING_SERVICE_STORAGE__URI", str(storage))
    monkeypatch.setenv("TRAINING_SERVICE_SCHEDULING__CAPACITY", str(CAPACITY))
    server = make_server("service")
    server.data_dir = tmp_path / "data"
    yield Restorable(server, tmp_path)
    if server.process is not None and server.process.poll() is None:
        server.end(signal.SIGKILL)
    for process in server.ranks():
        with suppress(psutil.NoSuchProcess):
            process.kill()


def await_state(client: TrainingClient, job_id: int, state: int) -> None:
    for status in client.watch(job_id):
        if status.status == state:
            return
    raise AssertionError(f"job {job_id} ended before it reached state {state}")


def test_jobs_continue_from_a_backup_with_the_groups_that_still_exist(service: Restorable) -> None:
    with service.server.start() as client:
        done = service.submit(client)
        client.wait(done, timeout=PATIENCE)
        running, ending, other = (service.submit(client, gate) for gate in ("last", "first", "first"))
        holder = service.submit(client, "first")
        for job in (running, ending, other, holder):
            await_state(client, job, pb.running)
        queued, queued_to_end = service.submit(client, "last"), service.submit(client)
        backup = service.backed_up()
        # All changes from here on are lost with the store.
        service.gate("first").touch()
        for job in (ending, other, holder, queued_to_end):
            assert client.wait(job, timeout=PATIENCE).status == pb.succeed
        unknown = service.submit(client, "never")
        for job in (queued, unknown):
            await_state(client, job, pb.running)
        never_launched = [service.submit(client, "never", PARALLEL_INSTANCES="3") for _ in range(3)]
    stray = service.server.rank(unknown, 0)
    survivors = {job: service.server.rank(job, 0) for job in (running, queued)}
    service.lose()
    said = service.restored(backup)
    assert "6 jobs had not ended" in said
    assert "2 of them have a group" in said
    assert "3 get another attempt" in said
    with service.server.start() as client:
        # Jobs that were queued at the backup, or ended after it, run again.
        for job in (ending, other, holder, queued_to_end):
            assert client.wait(job, timeout=PATIENCE).status == pb.succeed
        assert all(process.is_running() for process in survivors.values())
        service.gate("last").touch()
        for job in (running, queued):
            assert client.wait(job, timeout=PATIENCE).status == pb.succeed
        stray.wait(timeout=PATIENCE)
        with pytest.raises(NotFound):
            client.status(unknown)
        new = service.submit(client)
        assert new > 100_000 > max(never_launched)
        assert client.wait(new, timeout=PATIENCE).status == pb.succeed
        attempts = {job.job_id: job.attempt for job in client.list()}
    assert service.server.end(signal.SIGTERM) == 0
    # `done` did not run again, the survivors were adopted, and the others ran in another attempt. Only
    # `queued_to_end` repeats attempt 1: the backup does not have its first run.
    expected = {done: [1], running: [1], queued: [1], new: [1], queued_to_end: [1, 1]}
    expected |= {job: [1, 2] for job in (ending, other, holder)}
    assert {job: service.attempts_of(job) for job in expected} == expected
    assert {job: service.attempts_of(job, "ended") for job in expected} == expected
    assert attempts == {job: runs[-1] for job, runs in expected.items()}
    assert not any(key[3] == "overlaps" for key in service.runs())
    assert service.server.ranks() == []


def test_nothing_is_lost_or_doubled_at_any_time_of_the_backup(service: Restorable) -> None:
    chance = random.Random()

    def submitted(client: TrainingClient, number: int) -> list[int]:
        return [
            service.submit(
                client,
                RUN_SECONDS=f"{chance.uniform(0, 0.4):.2f}",
                PARALLEL_INSTANCES=str(chance.randint(1, 2)),
            )
            for _ in range(number)
        ]

    with service.server.start() as client:
        jobs = submitted(client, 16)
        client.wait(jobs[3], timeout=PATIENCE)
        backup = service.backed_up()
        later = submitted(client, 8)
        client.wait(chance.choice([*jobs[3:], *later]), timeout=PATIENCE)
    ended_before_the_loss = service.runs()
    service.lose()
    service.restored(backup)
    with service.server.start() as client:
        for job in jobs:
            assert client.wait(job, timeout=PATIENCE).status == pb.succeed
        listed = {job.job_id: job for job in client.list()}
        assert set(listed) == set(jobs)
        again = service.submit(client)
        assert client.wait(again, timeout=PATIENCE).status == pb.succeed
        assert again > 100_000
    assert service.server.end(signal.SIGTERM) == 0
    runs = service.runs()
    assert not any(key[3] == "overlaps" for key in runs)
    for job in jobs:
        assert runs[str(job), str(listed[job].attempt), "0", "ended"] >= 1
    for job in later:
        # two ranks, once each
        assert sum(count for key, count in runs.items() if key[0] == str(job)) <= 2 * 2
    assert ended_before_the_loss <= runs
    assert service.server.ranks() == []


def test_a_redis_snapshot_is_restored_with_redis(service: Restorable, redis: RedisServer) -> None:
    with service.server.start() as client:
        running, ending = (service.submit(client, gate) for gate in ("last", "first"))
        for job in (running, ending):
            await_state(client, job, pb.running)
        assert "the jobs are in Redis" in service.command("backup", str(service.folder / "backup.db"))[1]
        redis.ask("SAVE")
        snapshot = shutil.copy(redis.folder / "dump.rdb", service.folder)
        service.gate("first").touch()
        assert client.wait(ending, timeout=PATIENCE).status == pb.succeed
        unknown = service.submit(client, "never")
        await_state(client, unknown, pb.running)
    stray = service.server.rank(unknown, 0)
    service.server.end(signal.SIGKILL)
    redis.end()
    shutil.rmtree(redis.folder / "appendonlydir")
    shutil.copy(snapshot, redis.folder)
    redis.start("--requirepass", "s3cret", aof=False)
    redis.ask("CONFIG", "SET", "appendonly", "yes")
    code, said = service.command("restore")
    assert code == 0, said
    assert "1 of them have a group" in said
    with service.server.start() as client:
        service.gate("last").touch()
        for job in (running, ending):
            assert client.wait(job, timeout=PATIENCE).status == pb.succeed
        stray.wait(timeout=PATIENCE)
        assert service.submit(client) > 100_000
        code, said = service.command("restore")
        assert (code, "stop all its replicas" in said) == (2, True), said
    assert service.server.end(signal.SIGTERM) == 0
    assert service.attempts_of(running) == [1]
    assert service.attempts_of(ending) == [1, 2]


def test_a_restore_into_another_folder_is_refused_while_groups_run(service: Restorable) -> None:
    with service.server.start() as client:
        job = service.submit(client, "gate")
        await_state(client, job, pb.running)
        backup = service.backed_up()
        code, said = service.command("restore", str(backup))
        assert code == 2
        assert "another training service uses this job store" in said
    rank = service.server.rank(job, 0)
    service.server.end(signal.SIGKILL)
    elsewhere = service.folder / "elsewhere"
    code, said = service.command("restore", str(backup), data_dir=elsewhere)
    assert code == 2
    assert "processes of this store's jobs run on this machine" in said
    assert not (elsewhere / "jobs.db").exists()
    # Once they have ended, the job runs again in the new folder.
    service.gate("gate").touch()
    rank.wait(timeout=PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while (found := service.command("restore", str(backup), data_dir=elsewhere))[0] == 2:
        assert time.monotonic() < deadline, found  # the supervisor ends right after its rank
    service.server.data_dir = elsewhere
    with service.server.start() as client:
        assert client.wait(job, timeout=PATIENCE).status == pb.succeed
        assert client.status(job).attempt == 2
    assert service.server.end(signal.SIGTERM) == 0
    assert service.attempts_of(job) == [1, 2]


def test_a_restore_over_an_existing_store_keeps_the_old_one(service: Restorable) -> None:
    with service.server.start() as client:
        first = service.submit(client)
        client.wait(first, timeout=PATIENCE)
        backup = service.backed_up()
        second = service.submit(client)
        client.wait(second, timeout=PATIENCE)
    service.server.end(signal.SIGKILL)  # leaves the write-ahead log
    assert "The previous store is in" in service.restored(backup)
    [aside] = service.server.data_dir.glob("jobs.db.replaced-*")
    with service.server.start() as client:
        assert {job.job_id for job in client.list()} == {first}
    assert service.server.end(signal.SIGTERM) == 0
    # The old store is restored in the same way.
    shutil.move(service.server.data_dir / "jobs.db", service.folder / "unwanted.db")
    service.restored(aside / "jobs.db")
    with service.server.start() as client:
        assert {job.job_id for job in client.list()} == {first, second}
    assert service.server.end(signal.SIGTERM) == 0
    assert service.attempts_of(first) == service.attempts_of(second) == [1]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda file: None, "is not a file"),
        (
            lambda file: file.write_text("no database at all, but long enough to be read as one" * 40),
            "cannot be",
        ),
        (lambda file: file.touch(), "never had a job"),
    ],
    ids=["missing", "damaged", "empty"],
)
def test_an_invalid_backup_is_refused_and_changes_nothing(
    service: Restorable, make: Callable[[Path], object], says: str
) -> None:
    with service.server.start() as client:
        job = service.submit(client)
        client.wait(job, timeout=PATIENCE)
    service.server.end(signal.SIGTERM)
    before = {file.name: file.read_bytes() for file in service.server.data_dir.glob("jobs.db*")}
    make(service.folder / "none.db")
    code, said = service.command("restore", str(service.folder / "none.db"))
    assert (code, says in said) == (2, True), said
    assert {file.name: file.read_bytes() for file in service.server.data_dir.glob("jobs.db*")} == before
    assert "backups are not overwritten" in service.command("backup", str(service.folder / "config.toml"))[1]

"""Replicas on one Redis are killed, stopped, paused and restarted: nothing is lost or doubled."""

import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.frozen import freeze
from tests.support.patience import PATIENCE
from tests.support.redis_server import RedisServer
from training_service._generated import training_service_pb2 as pb
from training_service.client import TrainingClient
from training_service.client.errors import TrainingServiceError

if TYPE_CHECKING:
    from tests.support.server import Server
else:
    Server = Any

FOREVER = {"RUN_SECONDS": "forever", "PRINT": "up"}
LEADER = "{training-service}:leader"
LEASE_MS = 5000
"""The default of store.lease_seconds, in milliseconds."""
SUBMITTED = re.compile(r"\[job=(\d+)\b[^\]]*\] /training\.TrainingService/Train OK")
"""Matches the line in a replica's log about a job that it has accepted."""
READS = 4
"""The number of reads for each submission, in a load."""
KILLS = 10
"""The largest number of kills. With more, replicas on a slow machine would do little but start again."""


class Replicas:
    """Services that share a Redis and a data folder."""

    def __init__(self, folder: Path, redis: RedisServer, make: Callable[[str], Server]) -> None:
        self.folder = folder
        self.record = folder / "ranks.txt"
        self.servers: list[Server] = []
        self._redis = redis
        self._make = make

    def start(self, count: int, *arguments: str) -> None:
        """Start this number of replicas. The first leads."""
        for number in range(count):
            server = self._make(f"replica-{number}")
            server.start(*arguments).close()
            self.servers.append(server)
            if number == 0:
                self.leader()

    def client(self, *servers: Server, **options: Any) -> TrainingClient:
        """Return a client of these replicas, or of all."""
        return TrainingClient(",".join(each.address for each in servers or self.servers), **options)

    def leader(self, *, other_than: Server | None = None) -> Server:
        """Wait until Redis names a leader, and return this replica."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            holder = self._redis.ask("HGET", LEADER, "holder")
            for server in self.servers:
                runs = server.process is not None and server is not other_than
                if runs and holder and holder.endswith(f"/{server.process.pid}"):  # type: ignore[union-attr]
                    return server
            time.sleep(0.02)
        raise AssertionError(f"no replica leads: {self.logs()}")

    def logs(self) -> str:
        return "\n".join(server.log.read_text() for server in self.servers)

    def ran(self) -> Counter[tuple[str, ...]]:
        """Count the starts and ends of each rank of each attempt of each job."""
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        return Counter(tuple(line.split()) for line in lines)

    def end(self) -> None:
        """Cancel all jobs that have not ended, and stop all replicas."""
        alive = [each for each in self.servers if each.process is not None and each.process.poll() is None]
        if not alive and self.servers:
            self.servers[0].start().close()
            alive = self.servers[:1]
        if alive:
            with self.client(*alive) as client:
                jobs = list(client.list([pb.queuing, pb.launch, pb.running]))
                for job in jobs:
                    client.cancel(job.job_id)
                for job in jobs:
                    client.wait(job.job_id)
        for each in alive:
            assert each.end(signal.SIGTERM) == 0


@pytest.fixture
def replicas(tmp_path: Path, redis: RedisServer, make_server: Callable[[str], Server]) -> Iterator[Replicas]:
    """Replicas that are not started yet."""
    made = Replicas(tmp_path, redis, make_server)
    yield made
    made.end()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a short lease, which makes the test shorter."""
    monkeypatch.setenv("TRAINING_SERVICE_STORE__LEASE_SECONDS", "1")


def submit(client: TrainingClient, **parameters: str) -> int:
    return client.submit("program", "1", "v1", parameters=parameters)


def reaches(client: TrainingClient, job_id: int, status: int) -> None:
    for seen in client.watch(job_id):
        if seen.status == status:
            return
    raise AssertionError(f"job {job_id} ended without meeting the condition: {client.status(job_id)}")


def test_all_serve_and_one_leads(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    # Even if the leader or Redis pauses for some seconds, no other replica takes over.
    monkeypatch.setenv("TRAINING_SERVICE_STORE__LEASE_SECONDS", "60")
    replicas.start(3)
    first, second, third = replicas.servers
    assert replicas.leader() is first
    with replicas.client(second) as client, replicas.client(third) as other:
        job = submit(client, **FOREVER)
        reaches(other, job, pb.running)
        logs = other.logs(job, follow=True)
        assert next(logs).text == "up\n"
        other.cancel(job)
        assert client.wait(job).status == pb.cancelled
        assert list(logs) == []
    assert "leads now" in first.log.read_text()
    assert "leads now" not in second.log.read_text() + third.log.read_text()


def test_another_leads_soon_after_a_kill(replicas: Replicas, redis: RedisServer) -> None:
    replicas.start(2, "--capacity", "1")
    first, second = replicas.servers
    with replicas.client(second) as client:
        running = submit(client, RECORD=str(replicas.record), **FOREVER)
        waiting = submit(client, RECORD=str(replicas.record))
        assert next(client.logs(running, follow=True)).text == "up\n"  # a rank runs before it has begun
        first.end(signal.SIGKILL)
        # A bound on the time until the other leads would fail on a busy machine.
        assert -1 != redis.ask("PTTL", LEADER) <= LEASE_MS
        assert replicas.leader(other_than=first) is second
        client.cancel(running)
        assert client.wait(running).status == pb.cancelled
        assert client.wait(waiting).status == pb.succeed
    assert replicas.ran() == {
        (str(running), "1", "0", "began"): 1,
        (str(waiting), "1", "0", "began"): 1,
        (str(waiting), "1", "0", "ended"): 1,
    }


def test_the_last_of_three_leads_when_two_are_killed(replicas: Replicas, hasty: None) -> None:
    replicas.start(3)
    *_, last = replicas.servers
    with replicas.client() as client:
        job = submit(client, **FOREVER)
        reaches(client, job, pb.running)
        before = last.rank(job, 0)
        for _ in range(2):
            victim = replicas.leader()
            if victim is last:
                victim = next(each for each in replicas.servers if each.process and each is not last)
            victim.end(signal.SIGKILL)
            victim.process = None
        assert replicas.leader() is last
        assert client.status(job).status == pb.running
        assert last.rank(job, 0) == before
        client.cancel(job)
        assert client.wait(job).status == pb.cancelled


def test_another_leads_at_once_after_an_orderly_stop(replicas: Replicas) -> None:
    replicas.start(2)
    first, second = replicas.servers
    with replicas.client(second) as client:
        job = submit(client, **FOREVER)
        reaches(client, job, pb.running)
        before = second.rank(job, 0)
        assert first.process is not None
        first.process.send_signal(signal.SIGTERM)
        assert replicas.leader(other_than=first) is second
        assert first.process.wait(PATIENCE) == 0
        assert second.rank(job, 0) == before
        client.cancel(job)
        ended = client.wait(job)
        assert (ended.status, ended.attempt) == (pb.cancelled, 1)


def test_a_leader_that_stops_gives_up_its_lease(
    replicas: Replicas, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINING_SERVICE_STORE__LEASE_SECONDS", "60")  # it does not expire during the test
    replicas.start(1)
    [only] = replicas.servers
    assert replicas.leader() is only
    assert only.end(signal.SIGTERM) == 0
    assert redis.ask("EXISTS", LEADER) == 0


def test_a_paused_leader_changes_nothing_when_it_continues(replicas: Replicas, hasty: None) -> None:
    replicas.start(2, "--capacity", "2")
    paused, other = replicas.servers
    record = str(replicas.record)
    with replicas.client(other) as client:
        running = [submit(client, RECORD=record, **FOREVER) for _ in range(2)]
        waiting = [submit(client, RECORD=record) for _ in range(5)]
        for job in running:
            reaches(client, job, pb.running)
        assert paused.process is not None
        freeze(paused.process.pid)
        replicas.leader(other_than=paused)
        client.cancel(running[0])  # makes the knowledge of the paused leader obsolete
        assert client.wait(waiting[-1]).status == pb.succeed
        paused.process.send_signal(signal.SIGCONT)
        late = submit(client, RECORD=record)
        assert client.wait(late).status == pb.succeed
    deadline = time.monotonic() + PATIENCE
    while "lost leadership" not in paused.log.read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert "lost leadership" in paused.log.read_text()
    with replicas.client(paused) as client:
        assert client.status(running[1]).status == pb.running
        client.cancel(running[1])
        assert client.wait(running[1]).status == pb.cancelled
        states = {job.job_id: (job.status, job.attempt) for job in client.list()}
    assert states == {
        **dict.fromkeys([*waiting, late], (pb.succeed, 1)),
        **dict.fromkeys(running, (pb.cancelled, 1)),
    }
    assert set(replicas.ran().values()) == {1}


def test_replicas_survive_their_redis(
    replicas: Replicas, redis: RedisServer, tmp_path: Path, hasty: None
) -> None:
    replicas.start(2, "--capacity", "2")
    record, killed = str(replicas.record), tmp_path / "killed"
    with replicas.client() as client:
        jobs = [submit(client, RECORD=record, UNTIL_FILE=str(killed))]
        jobs += [submit(client, RECORD=record, RUN_SECONDS="1") for _ in range(5)]
        reaches(client, jobs[0], pb.running)
        redis.kill()
        killed.touch()
        time.sleep(2)  # twice the lease
        redis.start("--requirepass", "s3cret")
        assert [client.wait(job, timeout=PATIENCE).status for job in jobs] == [pb.succeed] * 6
    assert replicas.ran() == {(str(job), "1", "0", what): 1 for job in jobs for what in ("began", "ended")}


class Load:
    """Clients that submit and read continuously, and repeat unanswered requests with the same request key.

    Most calls are reads, because a job takes as long as its processes.
    """

    def __init__(self, replicas: Replicas) -> None:
        self.acknowledged: dict[str, int] = {}
        self.failures: list[TrainingServiceError] = []
        self._replicas = replicas
        self._stop = threading.Event()
        self._changed = threading.Condition()

    def run(self, number: int) -> None:
        with self._replicas.client() as client:
            for count in range(1_000_000):
                if self._stop.is_set():
                    return
                key = f"{number}-{count}"
                time.sleep(0.05)
                try:
                    job = client.submit(
                        *("program", "1", "v1"),
                        parameters={"RECORD": str(self._replicas.record)},
                        request_key=key,
                    )
                except TrainingServiceError as error:
                    self.failures.append(error)
                    continue
                with self._changed:
                    self.acknowledged[key] = job
                    self._changed.notify_all()
                for _ in range(READS):
                    time.sleep(0.05)
                    self._read(client, job)

    def await_more(self, count: int) -> None:
        """Wait until this number of further jobs is acknowledged."""
        with self._changed:
            wanted = len(self.acknowledged) + count
            assert self._changed.wait_for(lambda: len(self.acknowledged) >= wanted, PATIENCE)

    def await_answers(self, server: Server, begin: int, clients: int) -> None:
        """Wait until each client has submitted a job to this replica, whose log is read from `begin`.

        Only then is each client connected to the replica.
        """
        wanted = {str(number) for number in range(clients)}

        def all_are_connected() -> bool:
            answered = {int(job) for job in SUBMITTED.findall(server.log.read_text()[begin:])}
            submitters = {key.split("-")[0] for key, job in self.acknowledged.items() if job in answered}
            return submitters == wanted

        with self._changed:
            assert self._changed.wait_for(all_are_connected, PATIENCE)

    def _read(self, client: TrainingClient, job: int) -> None:
        try:
            assert client.status(job).job_id == job
        except TrainingServiceError as error:
            self.failures.append(error)

    @contextmanager
    def running(self, clients: int) -> Iterator[None]:
        threads = [threading.Thread(target=self.run, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()


def test_a_rolling_restart_under_load_loses_and_fails_nothing(replicas: Replicas) -> None:
    replicas.start(2, "--capacity", "4")
    load = Load(replicas)
    with load.running(clients=4):
        for server in replicas.servers * 2:
            load.await_more(6)
            assert server.end(signal.SIGTERM) == 0
            begin = len(server.log.read_text())
            server.start().close()
            # Otherwise, no replica that a client is connected to may be left when the other one stops.
            load.await_answers(server, begin, clients=4)
    assert load.failures == []
    jobs = sorted(load.acknowledged.values())
    assert len(jobs) == len(set(jobs)) >= 24
    with replicas.client() as client:
        assert {client.wait(job, timeout=PATIENCE).status for job in jobs} == {pb.succeed}
        assert sorted(job.job_id for job in client.list()) == jobs
    assert replicas.ran() == {(str(job), "1", "0", what): 1 for job in jobs for what in ("began", "ended")}


def test_every_queued_job_runs_once_while_replicas_are_killed(replicas: Replicas, hasty: None) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance, count = random.Random(seed), 40
    replicas.start(2, "--capacity", "4")
    with replicas.client(patience=30) as client:
        jobs = [
            client.submit(
                *("program", "1", "v1"),
                instances=1 + number % 2,
                parameters={
                    "RECORD": str(replicas.record),
                    "RUN_SECONDS": "0.3",
                    "EXIT_CODE": "3" if number % 10 == 0 else "0",
                },
            )
            for number in range(count)
        ]
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.5, 3))
            server = chance.choice(replicas.servers)
            server.end(signal.SIGKILL)
            server.start("--capacity", "4").close()
            if not any(client.list([pb.queuing, pb.launch, pb.running])):
                break
        for job in jobs:
            client.wait(job)
        listed = {job.job_id: (job.status, job.attempt) for job in client.list()}
    assert listed == {job: (pb.failure if (job - 1) % 10 == 0 else pb.succeed, 1) for job in jobs}
    shown = subprocess.run(
        [str(Path(sys.executable).with_name("trainctl")), "-a", replicas.servers[0].address, "list"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert (shown.count("\tsucceed\t"), shown.count("\tfailure\t")) == (36, 4), shown
    assert replicas.ran() == {
        (str(job), "1", str(rank), what): 1
        for job in jobs
        for rank in range(1 + (job - 1) % 2)
        for what in ("began", "ended")
    }

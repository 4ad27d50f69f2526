"""The folder of one service and of its witnesses, and what must be true of it in the end."""

import json
import shutil
import socket
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from job_tracker.naming import instance_name
from tests.crash.kept import KeptService
from tests.crash.scenario import CAPACITY, JOBS, PlannedJob, submit
from training_service._generated import training_service_pb2 as pb

_RANK = Path(__file__).with_name("rank.sh")
_OF_A_GROUP = {"group.json", "stop.json", "supervisors.log"}
_OF_A_RANK = {"exit.json", "lock", "log", "process.json"}


@dataclass(frozen=True, slots=True)
class World:
    """Processes and SQLite, below one folder."""

    folder: Path

    @property
    def witness(self) -> Path:
        """Where the ranks write down that they run."""
        return self.folder / "witness"

    @property
    def data(self) -> Path:
        """What is the service's."""
        return self.folder / "data"

    def make(self) -> None:
        """An empty one."""
        shutil.rmtree(self.folder, ignore_errors=True)
        version = self.data / "storage" / "versionedDatasets" / "1" / "v1"
        for place in (self.witness, version):
            place.mkdir(parents=True)
        for name in ("examples.csv", "labels.csv"):
            (version / name).touch()
        (self.folder / "config.toml").write_text(
            f"""
            [storage]
            data_dir = {json.dumps(str(self.data))}
            [scheduling]
            capacity = {CAPACITY}
            [jobs]
            stop_grace = 5
            [retry]
            backoff = 0.05
            [algorithms.witness]
            other_parameters = true
            environment = {{ WITNESS = {json.dumps(str(self.witness))} }}
            [algorithms.witness.process]
            command = ["sh", {json.dumps(str(_RANK))}]
            """
        )

    def remove(self) -> None:
        """Nothing is left of it."""
        shutil.rmtree(self.folder)


def check_jobs(service: KeptService, ids: Mapping[str, int], excused: frozenset[str]) -> Iterator[str]:
    """What is wrong with the jobs as a client sees them; a job may have failed for what is excused."""
    if list(ids.values()) != sorted(set(ids.values())):
        yield f"ids do not grow: {list(ids.values())}"
    listed = service.ask(lambda client: list(client.list()))
    seen = {job.job_id: job for job in listed}
    if sorted(job.job_id for job in listed) != sorted(ids.values()):
        yield f"jobs {sorted(seen)} are listed, and {sorted(ids.values())} were acknowledged"
    for planned in JOBS:
        job_id = ids[planned.name]
        job = seen.get(job_id) or pb.GetTrainingStatusResponse()
        end = (job.status, job.diagnosis.category)
        is_excused = end[0] == pb.failure and end[1] in excused
        if end != (planned.status, planned.category) and not is_excused:
            yield f"{planned.name} (job {job_id}) ended as {pb.TrainingStatus.Name(job.status)} {job.message}"
        phases = {rank.phase for rank in job.ranks}
        if job.status == pb.succeed and phases != {pb.RANK_PHASE_SUCCEEDED}:
            yield f"{planned.name} (job {job_id}) succeeded with {job.ranks}"
        if job.attempt != planned.attempts and not is_excused:
            yield f"{planned.name} (job {job_id}) had {job.attempt} attempts"
        if service.ask(lambda client, planned=planned: submit(client, planned)) != job_id:  # type: ignore[misc]
            yield f"{planned.name} (job {job_id}) got another id when it was asked for again"
        if job.attempt and not is_excused:
            yield from _check_logs(service, job_id, planned)


def _check_logs(service: KeptService, job_id: int, planned: PlannedJob) -> Iterator[str]:
    for rank in range(planned.instances):
        pieces = service.ask(lambda client, rank=rank: list(client.logs(job_id, rank=rank)))  # type: ignore[misc]
        if f"rank {rank} of job {job_id}\n" not in "".join(piece.text for piece in pieces):
            yield f"the log of rank {rank} of job {job_id} is not there"


def check_witnesses(world: World) -> Iterator[str]:
    """What the ranks saw that should not be."""
    together = world.witness / "together"
    if together.exists():
        yield f"ran twice at once: {together.read_text()}"
    starts = (world.witness / "starts").read_text().splitlines()
    for line in sorted({line for line in starts if starts.count(line) > 1}):
        yield f"ran {starts.count(line)} times: job, attempt and rank {line}"


def check_store(world: World) -> Iterator[str]:
    """What is wrong with the store's file."""
    db = sqlite3.connect(f"file:{world.data / 'jobs.db'}?immutable=1", uri=True)
    try:
        for (problem,) in db.execute("PRAGMA integrity_check"):
            if problem != "ok":
                yield f"the store is damaged: {problem}"
        counted = "SELECT state, count(*), sum(instances) FROM jobs GROUP BY state ORDER BY state"
        kept = "SELECT * FROM tallies WHERE jobs > 0 ORDER BY state"
        if db.execute(counted).fetchall() != db.execute(kept).fetchall():
            yield "the store's tallies are not the counts of its jobs"
        if db.execute("SELECT count(*) FROM queue_blocks").fetchone() != (0,):
            yield "the store counts queued jobs, and there are none"
        yield from _check_order(db)
    finally:
        db.close()


def _check_order(db: sqlite3.Connection) -> Iterator[str]:
    """Whether one overtook an earlier one, or did not wait until there was room for it."""
    query = "SELECT id, instances, attempt, started_at, finished_at FROM jobs WHERE started_at IS NOT NULL"
    ran = db.execute(query + " ORDER BY id").fetchall()
    for index, (job, size, attempt, start, end) in enumerate(ran):
        for earlier, its_size, its_attempt, its_start, its_end in ran[:index]:
            if start < its_start and attempt == its_attempt == 1:
                yield f"job {job} started before job {earlier}"
            if size + its_size > CAPACITY and start < its_end and its_start < end:
                yield f"jobs {earlier} and {job} ran at once, and both do not fit in"


def check_leftovers(world: World) -> Iterator[str]:
    """What should be gone and is not."""
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME", "").startswith(str(world.folder)):
                yield f"a process is left: {process}"
        except psutil.Error:
            continue
    groups = world.data / "groups"
    expected = {"jobs.db", "jobs.db.lock", "storage", "groups"}
    yield from _unexpected(world.data, expected)
    yield from _unexpected(groups, {"live", "ended"})
    yield from _unexpected(groups / "live", set())
    for group in (groups / "ended").iterdir():
        record = json.loads((group / "group.json").read_text())
        ranks = {instance_name(group.name, rank) for rank in range(record["instances"])}
        yield from _unexpected(group, _OF_A_GROUP | ranks)
        for rank in ranks:
            yield from _unexpected(group / rank, _OF_A_RANK)
        if not _is_free(record["master_port"]):
            yield f"port {record['master_port']} of {group.name} is still in use"


def _unexpected(folder: Path, expected: set[str]) -> Iterator[str]:
    for path in folder.iterdir() if folder.exists() else ():
        if path.name not in expected:
            yield f"left behind: {path.relative_to(folder.parents[1])}"


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0

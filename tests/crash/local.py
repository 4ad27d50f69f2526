"""The world of a service on one machine, with processes, and with SQLite or Redis."""

import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import psutil

from job_tracker.domain.naming import instance_name
from tests.crash.scenario import (
    CAPACITY,
    JOBS,
    LOSING,
    PREEMPTION,
    RANK_PARAMETERS,
    RUN,
    PlannedJob,
    write_user_folder,
)
from tests.crash.stored import problems_in_redis, problems_in_sqlite
from tests.support.parameters import declared
from tests.support.redis_server import ANSWER_SECONDS, RedisServer

_RANK = Path(__file__).with_name("rank.sh")
_OF_A_GROUP = {"group.json", "stop.json", "supervisors.log"}
_OF_A_RANK = {"exit.json", "lock", "log", "process.json", "restarts", "unpacked"}


@dataclass(slots=True)
class LocalWorld:
    """Processes below one folder, and SQLite or a new store in Redis for each run. See World."""

    folder: Path
    redis: RedisServer | None = None
    jobs: ClassVar[Sequence[PlannedJob]] = (*JOBS, LOSING, *PREEMPTION)
    evict: ClassVar[None] = None
    decides = True
    _prefix: str = ""

    @property
    def wraps(self) -> Sequence[str]:
        """See World."""
        return ("sqlite" if self.redis is None else "redis", "processes")

    @property
    def witness(self) -> Path:
        """The folder where ranks record that they run."""
        return self.folder / "witness"

    @property
    def data(self) -> Path:
        """The service's data folder."""
        return self.folder / "data"

    def make(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        version = self.data / "storage" / "versionedDatasets" / "1" / "v1"
        for place in (self.witness, version):
            place.mkdir(parents=True)
        for name in ("examples.csv", "labels.csv"):
            (version / name).touch()
        # Elastic groups are started by torchrun. The witness script replaces it.
        torchrun = self.folder / "torchrun"
        torchrun.write_text(f"#!/bin/sh\nexec sh {_RANK}\n")
        torchrun.chmod(0o755)
        write_user_folder(
            self.folder,
            {RUN: f"#!/bin/sh\nexport WITNESS='{self.witness}'\n. ./rank", "rank": _RANK.read_text()},
        )
        self._prefix = f"crash-{uuid.uuid4().hex}"
        (self.folder / "config.toml").write_text(
            f"""
            {self._store()}
            [storage]
            data_dir = {json.dumps(str(self.data))}
            [scheduling]
            capacity = {CAPACITY}
            overtake_limit = 0
            [scheduling.queues.default.preemption]
            by_priority = true
            resize_period = 0.1
            [jobs]
            stop_grace = 5
            [retry]
            backoff = 0.05
            [algorithms.witness]
            {declared(RANK_PARAMETERS)}
            environment = {{ WITNESS = {json.dumps(str(self.witness))} }}
            [algorithms.witness.process]
            command = ["sh", {json.dumps(str(_RANK))}]
            [algorithms.elastic-witness]
            {declared(RANK_PARAMETERS)}
            elastic = {{ min_instances = 2, max_restarts = 3 }}
            environment = {{ WITNESS = {json.dumps(str(self.witness))} }}
            [algorithms.elastic-witness.process]
            command = ["torchrun"]
            [algorithms.sizable-witness]
            {declared(RANK_PARAMETERS)}
            elastic = {{ min_instances = 1, max_restarts = 0 }}
            environment = {{ WITNESS = {json.dumps(str(self.witness))} }}
            [algorithms.sizable-witness.process]
            command = ["torchrun"]
            [process]
            path = {json.dumps(f"{self.folder}:{os.defpath}")}
            """
        )

    def is_settled(self) -> bool:
        groups = self.data / "groups"
        return not [*(groups / "kept").glob("*"), *(groups / "gone").glob("*")]

    def problems(self) -> Iterator[str]:
        yield from _witnessed(self)
        if self.redis is None:
            yield from problems_in_sqlite(self.data / "jobs.db")
        else:
            yield from problems_in_redis(self.redis, self._prefix)
        yield from _left_over(self)

    def close(self) -> None:
        pass

    def _store(self) -> str:
        if self.redis is None:
            return ""
        return f"""
            [store]
            url = "{self.redis.url}"
            prefix = "{self._prefix}"
            lease_seconds = 1
            answer_seconds = {ANSWER_SECONDS}
            """


def _witnessed(world: LocalWorld) -> Iterator[str]:
    """Yield violations that the ranks recorded."""
    together = world.witness / "together"
    if together.exists():
        yield f"two processes of a rank ran at once: {together.read_text()}"
    starts = (world.witness / "starts").read_text().splitlines()
    for line in sorted({line for line in starts if starts.count(line) > 1}):
        yield f"ran {starts.count(line)} times: job, attempt and rank {line}"


def _left_over(world: LocalWorld) -> Iterator[str]:
    """Yield processes and files that should be gone. A port is in use only as long as a process is left."""
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME", "").startswith(f"{world.folder}{os.sep}"):
                yield f"a process is left: {process}"
        except psutil.Error:
            continue
    groups = world.data / "groups"
    expected = {"jobs.db", "jobs.db.lock", "jobs.db.mark", "storage", "groups", "programs"}
    if world.redis is not None:
        expected = {"storage", "groups", "programs", *(path.name for path in world.data.glob("redis-*"))}
    yield from _unexpected(world.data, expected)
    yield from _unexpected(groups, {"live", "kept", "ended", "gone"})
    yield from _unexpected(groups / "live", set())
    yield from _unexpected(groups / "kept", set())
    yield from _unexpected(groups / "gone", set())
    for group in (groups / "ended").iterdir():
        record = json.loads((group / "group.json").read_text())
        ranks = {instance_name(record["name"], rank, role) for rank, role in enumerate(record["roles"])}
        yield from _unexpected(group, _OF_A_GROUP | ranks)
        for rank in ranks:
            yield from _unexpected(group / rank, _OF_A_RANK)


def _unexpected(folder: Path, expected: set[str]) -> Iterator[str]:
    for path in folder.iterdir() if folder.exists() else ():
        if path.name not in expected:
            yield f"left behind: {path.relative_to(folder.parents[1])}"

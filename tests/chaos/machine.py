"""The world of one machine: processes, on SQLite with one service or on Redis with three."""

import json
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from tests.chaos import processes
from tests.chaos.audit import Audit
from tests.chaos.faults import Disturbances, Fault
from tests.chaos.hostile import FIFO, KEPT, ROOT_LINK, SECRET
from tests.chaos.outages import LEASE_SECONDS, PREFIX, Outages
from tests.chaos.processes import MARK
from tests.chaos.service import Service
from tests.chaos.victims import Victims
from tests.crash.stored import problems_in_redis, problems_in_sqlite
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer

_ROOT = Path(__file__).parents[2]
_REPLICAS = 3


class MachineWorld:
    has_process_groups = True

    def __init__(
        self, folder: Path, run: str, capacity: int, redis_server: RedisServer | None = None
    ) -> None:
        self.audit = folder / "audit"
        self.secret = f"secret of {run}"
        self.disturbances = Disturbances()
        self.victims = Victims(run, have_supervisors=True)
        self._folder = folder
        self._run = run
        self._capacity = capacity
        self._data = folder / "data"
        self._outside = folder / "outside"
        self.peeks: Sequence[str] = (SECRET, FIFO, f"{ROOT_LINK}{self._outside}/{SECRET}")
        self._redis = redis_server
        self.foreseen: Collection[str] = ("StoreUnavailable",) if redis_server else ()
        names = [f"replica-{number}" for number in range(_REPLICAS)] if redis_server else ["service"]
        self.services: Sequence[Service] = [
            Service(name, folder, f"127.0.0.1:{free_port()}") for name in names
        ]
        self._outages = Outages(self.services, redis_server, self.disturbances)

    def open(self) -> None:
        version = self._data / "storage" / "versionedDatasets" / "1" / "v1"
        for place in (self.audit, version, self._outside):
            place.mkdir(parents=True)
        for name in ("examples.csv", "labels.csv"):
            (version / name).touch()
        (self._outside / SECRET).write_text(self.secret)
        (self._outside / KEPT).touch()
        # Elastic groups are started by torchrun. The rank program replaces it.
        torchrun = self._folder / "torchrun"
        torchrun.write_text(f"#!/bin/sh\nexec '{sys.executable}' -I -S -c \"{_program('rank')}\"\n")
        torchrun.chmod(0o755)
        (self._folder / "config.toml").write_text(self._config())
        self._outages.begin()

    def faults(self) -> Sequence[Fault]:
        return self._outages.faults()

    def heal(self) -> None:
        self._outages.heal()

    def is_settled(self) -> bool:
        return not list(self._unsettled())

    def problems(self) -> Iterator[str]:
        yield from (f"left behind: {path.relative_to(self._folder)}" for path in self._unsettled())
        for found in processes.marked(self._run):
            yield f"still runs: {found.pid}, a process of job {found.job} attempt {found.attempt}"
        for pid in processes.supervisors(self._folder):
            yield f"still runs: {pid}, a supervisor"
        if self._redis is None:
            yield from problems_in_sqlite(self._data / "jobs.db")
        else:
            yield from problems_in_redis(self._redis, PREFIX)
        there = {path.name for path in self._outside.iterdir()}
        if there != {SECRET, KEPT} or (self._outside / SECRET).read_text() != self.secret:
            yield f"a folder outside of all jobs was changed; it contains {sorted(there)}"

    def close(self) -> None:
        self._outages.close(self._clean_up)

    def _clean_up(self) -> None:
        processes.kill_all(self._run, self._folder)
        Audit(self.audit / "audit").kill_left()

    def _unsettled(self) -> Iterator[Path]:
        for place in ("live", "kept", "gone"):
            yield from (self._data / "groups" / place).glob("*")

    def _config(self) -> str:
        # Parameters are declared, so that no others are passed on.
        algorithm = f"""
            max_instances = 3
            parameters = {{ DO = {{}}, SECONDS = {{}}, EXIT_CODE = {{}}, STUBBORN = {{}}, ACT = {{}} }}
            [algorithms.NAME.environment]
            {MARK} = "{self._run}"
            AUDIT = {json.dumps(str(self.audit))}
            OUTSIDE = {json.dumps(str(self._outside))}
            [algorithms.NAME.process]
        """
        python = [sys.executable, "-I", "-S", "-c"]
        store = ""
        if self._redis is not None:
            store = f"""
            [store]
            url = "{self._redis.url}"
            prefix = "{PREFIX}"
            lease_seconds = {LEASE_SECONDS}
            answer_seconds = 1
            """
        return f"""
            [storage]
            data_dir = {json.dumps(str(self._data))}
            {store}
            [scheduling]
            capacity = {self._capacity}
            [jobs]
            stop_grace = 1
            finish_grace = 5
            [retry]
            max_attempts = 30
            backoff = 0.05
            max_backoff = 1
            [logs]
            max_bytes_per_rank = 4194304
            [process]
            path = {json.dumps(f"{self._folder}:{os.defpath}")}
            [algorithms.honest]
            {algorithm.replace("NAME", "honest")}
            command = {json.dumps([*python, _program("rank")])}
            [algorithms.elastic]
            elastic = {{ min_instances = 2, max_restarts = 3 }}
            {algorithm.replace("NAME", "elastic")}
            command = ["torchrun"]
            [algorithms.hostile]
            {algorithm.replace("NAME", "hostile")}
            command = {json.dumps([*python, _program("hostile")])}
            """


def _program(module: str) -> str:
    """Return the argument of python -c that runs this module of the package with an isolated path."""
    return f"import sys; sys.path.append('{_ROOT}'); from tests.chaos.{module} import main; main()"

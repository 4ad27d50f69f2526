"""One machine: processes, on SQLite with one service, or on Redis with three."""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import redis

from tests.chaos import processes
from tests.chaos.faults import Disturbances, Fault
from tests.chaos.hostile import KEPT, SECRET
from tests.chaos.processes import MARK
from tests.chaos.service import Service
from tests.chaos.victims import Victims
from tests.crash.stored import problems_in_redis, problems_in_sqlite
from tests.support.redis_server import RedisServer, free_port

_ROOT = Path(__file__).parents[2]
_REPLICAS = 3
_PREFIX = "chaos"
_LEASE_SECONDS = 2
_LONGEST_FREEZE = 4.0  # twice the lease: another one leads meanwhile
_LONGEST_AWAY = 2.0


class MachineWorld:
    """See World."""

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
        self._redis = redis_server
        self.foreseen: Collection[str] = ("StoreUnavailable",) if redis_server else ()
        names = [f"replica-{number}" for number in range(_REPLICAS)] if redis_server else ["service"]
        self.services: Sequence[Service] = [
            Service(name, folder, f"127.0.0.1:{free_port()}") for name in names
        ]

    def open(self) -> None:
        """See World."""
        version = self._data / "storage" / "versionedDatasets" / "1" / "v1"
        for place in (self.audit, version, self._outside):
            place.mkdir(parents=True)
        for name in ("examples.csv", "labels.csv"):
            (version / name).touch()
        (self._outside / SECRET).write_text(self.secret)
        (self._outside / KEPT).touch()
        # An elastic group is started by torchrun; the rank takes its place.
        torchrun = self._folder / "torchrun"
        torchrun.write_text(f"#!/bin/sh\nexec '{sys.executable}' -I -S -c \"{_program('rank')}\"\n")
        torchrun.chmod(0o755)
        (self._folder / "config.toml").write_text(self._config())
        if self._redis is not None:
            self._start_redis()
        for service in self.services:
            service.start()
        for service in self.services:
            service.wait_until_serving()

    def faults(self) -> Sequence[Fault]:
        """See World."""
        of_services = (
            Fault("kill a service", lambda dice: self._end(dice, signal.SIGKILL), 4),
            Fault("freeze a service", self._freeze, 4),
            Fault("stop a service", lambda dice: self._end(dice, signal.SIGTERM), 1),
        )
        of_replicas = (
            Fault("kill the leader", lambda dice: self._end_leader(signal.SIGKILL), 4),
            Fault("freeze the leader", self._freeze_leader, 4),
            Fault("kill all services", self._kill_all, 1),
            Fault("kill Redis", lambda dice: self._restart_redis(dice, signal.SIGKILL), 2),
            Fault("stop Redis", lambda dice: self._restart_redis(dice, signal.SIGTERM), 1),
            Fault("freeze Redis", self._freeze_redis, 2),
        )
        return of_services + (of_replicas if self._redis is not None else ())

    def heal(self) -> None:
        """See World. Each fault ends by itself, but for one that failed half-way."""
        if self._redis is not None and self._redis.process is None:
            self._start_redis()
        for service in self.services:
            service.wait_until_serving()

    def is_settled(self) -> bool:
        """See World."""
        return not list(self._unsettled())

    def problems(self) -> Iterator[str]:
        """See World."""
        yield from (f"left behind: {path.relative_to(self._folder)}" for path in self._unsettled())
        for found in processes.marked(self._run):
            yield f"still runs: {found.pid}, a process of job {found.job} attempt {found.attempt}"
        for pid in processes.supervisors(self._folder):
            yield f"still runs: {pid}, a supervisor"
        if self._redis is None:
            yield from problems_in_sqlite(self._data / "jobs.db")
        else:
            yield from problems_in_redis(self._redis, _PREFIX)
        there = {path.name for path in self._outside.iterdir()}
        if there != {SECRET, KEPT} or (self._outside / SECRET).read_text() != self.secret:
            yield f"a folder outside of all jobs was changed; it has {sorted(there)}"

    def close(self) -> None:
        """See World."""
        for service in self.services:
            service.close()
        processes.kill_all(self._run, self._folder)
        if self._redis is not None:
            self._redis.kill()

    def _unsettled(self) -> Iterator[Path]:
        for place in ("live", "kept", "gone"):
            yield from (self._data / "groups" / place).glob("*")

    def _config(self) -> str:
        # Parameters are declared, so that nothing else is passed on.
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
            prefix = "{_PREFIX}"
            lease_seconds = {_LEASE_SECONDS}
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
            elastic = {{ max_restarts = 3 }}
            {algorithm.replace("NAME", "elastic")}
            command = ["torchrun"]
            [algorithms.hostile]
            {algorithm.replace("NAME", "hostile")}
            command = {json.dumps([*python, _program("hostile")])}
            """

    def _end(self, dice: random.Random, number: int) -> bool:
        return self._end_service(dice.choice(self.services), number)

    def _end_service(self, service: Service, number: int) -> bool:
        with self.disturbances.during():
            service.end(number)
        return True

    def _freeze(self, dice: random.Random) -> bool:
        return self._freeze_service(dice.choice(self.services), dice)

    def _freeze_service(self, service: Service, dice: random.Random) -> bool:
        with self.disturbances.during():
            service.freeze(dice.uniform(0.2, _LONGEST_FREEZE))
        return True

    def _leader(self) -> Service | None:
        assert self._redis is not None
        holder = ""
        with suppress(redis.RedisError):
            holder = self._redis.ask("HGET", f"{{{_PREFIX}}}:leader", "holder") or ""
        return next((each for each in self.services if holder.endswith(f"/{each.pid}")), None)

    def _end_leader(self, number: int) -> bool:
        leader = self._leader()
        return leader is not None and self._end_service(leader, number)

    def _freeze_leader(self, dice: random.Random) -> bool:
        leader = self._leader()
        return leader is not None and self._freeze_service(leader, dice)

    def _kill_all(self, dice: random.Random) -> bool:
        with self.disturbances.during():
            for service in self.services[1:]:
                service.signal(signal.SIGKILL)
            self.services[0].end(signal.SIGKILL)
            for service in self.services:
                service.wait_until_serving()
        return True

    def _start_redis(self) -> None:
        assert self._redis is not None
        self._redis.start("--appendfsync", "always")

    def _restart_redis(self, dice: random.Random, number: int) -> bool:
        assert self._redis is not None
        with self.disturbances.during():
            self._redis.end(number)
            time.sleep(dice.uniform(0, _LONGEST_AWAY))
            self._start_redis()
            for service in self.services:
                service.wait_until_serving()
        return True

    def _freeze_redis(self, dice: random.Random) -> bool:
        assert self._redis is not None
        with self.disturbances.during():
            self._redis.pause()
            try:
                time.sleep(dice.uniform(0.2, _LONGEST_FREEZE))
            finally:
                self._redis.resume()
        return True


def _program(module: str) -> str:
    """What python -c takes to run that module of this package, with nothing else on its path."""
    return f"import sys; sys.path.append('{_ROOT}'); from tests.chaos.{module} import main; main()"

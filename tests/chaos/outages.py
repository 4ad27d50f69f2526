"""Faults of services and of their Redis server: kills, stops, freezes. Everything runs again afterwards."""

import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import redis

from tests.chaos.faults import Disturbances, Fault
from tests.chaos.service import Service
from tests.support.redis_server import RedisServer

PREFIX = "chaos"
"""The prefix of the keys in Redis."""
LEASE_SECONDS = 2
_LONGEST_FREEZE = 2.0 * LEASE_SECONDS  # long enough for another replica to become the leader
_LONGEST_AWAY = 2.0


class Outages:
    """The faults of services that share a store."""

    def __init__(
        self, services: Sequence[Service], redis_server: RedisServer | None, disturbances: Disturbances
    ) -> None:
        self._services = services
        self._redis = redis_server
        self._disturbances = disturbances

    def begin(self) -> None:
        """Start Redis, if used, and the services; return when they serve."""
        if self._redis is not None:
            self._start_redis()
        for service in self._services:
            service.start()
        self._wait()

    def heal(self) -> None:
        """Ensure that everything runs. Each fault repairs itself, unless it failed half-way."""
        if self._redis is not None and self._redis.process is None:
            self._start_redis()
        self._wait()

    def close(self, clean_up: Callable[[], object]) -> None:
        """End everything at once. `clean_up` is called when the services have ended."""
        for service in self._services:
            service.close()
        clean_up()
        if self._redis is not None:
            self._redis.kill()

    def faults(self) -> Sequence[Fault]:
        """Return all faults."""
        of_services = (
            Fault("kill a service", lambda dice: self._end(dice.choice(self._services), signal.SIGKILL), 4),
            Fault("freeze a service", lambda dice: self._freeze(dice.choice(self._services), dice), 4),
            Fault("stop a service", lambda dice: self._end(dice.choice(self._services), signal.SIGTERM), 1),
        )
        of_replicas = (
            Fault("kill the leader", lambda dice: self._end(self._leader(), signal.SIGKILL), 4),
            Fault("freeze the leader", lambda dice: self._freeze(self._leader(), dice), 4),
            Fault("kill all services", lambda dice: self._kill_all(), 1),
            Fault("kill Redis", lambda dice: self._restart_redis(dice, signal.SIGKILL), 2),
            Fault("stop Redis", lambda dice: self._restart_redis(dice, signal.SIGTERM), 1),
            Fault("freeze Redis", self._freeze_redis, 2),
        )
        return of_services + (of_replicas if self._redis is not None else ())

    def _end(self, service: Service | None, number: int) -> bool:
        if service is None:
            return False
        with self._disturbances.during():
            service.end(number)
        return True

    def _freeze(self, service: Service | None, dice: random.Random) -> bool:
        if service is None:
            return False
        with self._disturbances.during():
            service.freeze(dice.uniform(0.2, _LONGEST_FREEZE))
        return True

    def _leader(self) -> Service | None:
        assert self._redis is not None
        holder = ""
        with suppress(redis.RedisError):
            holder = self._redis.ask("HGET", f"{{{PREFIX}}}:leader", "holder") or ""
        return next((each for each in self._services if holder.endswith(f"/{each.pid}")), None)

    def _kill_all(self) -> bool:
        with self._disturbances.during():
            for service in self._services[1:]:
                service.signal(signal.SIGKILL)
            self._services[0].end(signal.SIGKILL)
            self._wait()
        return True

    def _restart_redis(self, dice: random.Random, number: int) -> bool:
        assert self._redis is not None
        with self._disturbances.during():
            self._redis.end(number)
            time.sleep(dice.uniform(0, _LONGEST_AWAY))
            self._start_redis()
            self._wait()
        return True

    def _freeze_redis(self, dice: random.Random) -> bool:
        assert self._redis is not None
        with self._disturbances.during():
            self._redis.pause()
            try:
                time.sleep(dice.uniform(0.2, _LONGEST_FREEZE))
            finally:
                self._redis.resume()
        return True

    def _start_redis(self) -> None:
        assert self._redis is not None
        self._redis.start("--appendfsync", "always")

    def _wait(self) -> None:
        for service in self._services:
            service.wait_until_serving()

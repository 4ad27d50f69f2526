"""Plays jobs and faults against real services, and checks that nothing is lost, duplicated or left behind.

Exits with 1 if a check fails.
"""

import argparse
import random
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.machine import MachineWorld
from tests.chaos.plans import KINDS, acts_of
from tests.chaos.report import report
from tests.chaos.run import Options, run
from tests.chaos.world import World
from tests.support.redis_server import MISSING, RedisServer, find_server

_CAPACITY_OF_A_LANE = 3
_PATIENCE = {"machine": 60.0, "redis": 60.0, "cluster": 180.0}
_SLOW = {"machine": 5.0, "redis": 5.0, "cluster": None}
"""Seconds. On a cluster, the node decides how soon a pod starts."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Return 0 if all checks pass."""
    asked = _parsed(arguments)
    # Clean up after both signals. A program that a shell starts with & ignores SIGINT by default.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    options = Options(
        seed=asked.seed,
        jobs=asked.jobs,
        faults=asked.faults if asked.faults is not None else asked.jobs // 3,
        acts=acts_of(asked.hostile) if asked.on != "cluster" else (),
        seconds=asked.seconds,
        lanes=asked.lanes,
        patience=asked.patience if asked.patience is not None else _PATIENCE[asked.on],
        slow=asked.slow if asked.slow is not None else _SLOW[asked.on],
    )
    _print(f"seed {options.seed}: {options.jobs} jobs, {options.faults} faults")
    with _folder(asked.keep) as folder:
        record = run(
            _world(asked.on, folder, options, spares_api_server=asked.spare_api_server), options, _print
        )
    print("\n".join(report(record)))
    return 1 if record.problems else 0


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--on", choices=("machine", "redis", "cluster"), default="machine")
    parser.add_argument("--jobs", type=int, default=600)
    parser.add_argument("--faults", type=int, help="number of faults (default: a third of the jobs)")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(10**6), help="seed of the random choices"
    )
    parser.add_argument("--seconds", type=float, help="stop submitting jobs after this time")
    parser.add_argument("--lanes", type=int, default=12, help="number of jobs at a time")
    parser.add_argument(
        "--patience",
        type=float,
        metavar="SECONDS",
        help="time after which anything counts as stuck",
    )
    parser.add_argument(
        "--slow", type=float, metavar="SECONDS", help="longest time for an answer or a start without a fault"
    )
    parser.add_argument(
        "--hostile",
        type=lambda text: text.split(","),
        default=KINDS,
        metavar="KINDS",
        help=f"kinds of hostile jobs, out of {','.join(KINDS)}, or single acts of hostile.py",
    )
    parser.add_argument("--no-hostile", dest="hostile", action="store_const", const=())
    parser.add_argument(
        "--spare-api-server", action="store_true", help="no faults of the API server, for a shared cluster"
    )
    parser.add_argument("--keep", type=Path, help="empty folder for logs and files, which stay")
    asked = parser.parse_args(arguments)
    try:
        acts_of(asked.hostile)
    except ValueError as error:
        parser.error(f"--hostile: {error}")
    return asked


def _end(number: int, frame: object) -> None:
    for other in (signal.SIGTERM, signal.SIGINT):
        signal.signal(other, signal.SIG_IGN)
    _print("interrupted; cleaning up")
    sys.exit(128 + number)


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        yield kept.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _world(kind: str, folder: Path, options: Options, *, spares_api_server: bool) -> World:
    name, capacity = uuid.uuid4().hex, options.lanes * _CAPACITY_OF_A_LANE
    if kind == "machine":
        return MachineWorld(folder, name, capacity)
    program = find_server()
    if program is None:
        sys.exit(MISSING)
    redis = RedisServer(program, folder / "redis")
    if kind == "cluster":
        from tests.chaos.cluster import PROVIDER, ClusterWorld
        from tests.support.cluster import Cluster

        cluster = Cluster.up()
        if cluster.provider != PROVIDER:
            sys.exit(f"the node must be this machine: cluster provider {PROVIDER}, not {cluster.provider}")
        return ClusterWorld(cluster, folder, name, capacity, redis, spares_api_server=spares_api_server)
    return MachineWorld(folder, name, capacity, redis)


def _print(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""`scripts/crash-points`: tries all points, or selected ones, and prints the figures."""

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from tests.crash.forkserver import ForkServer
from tests.crash.local import LocalWorld
from tests.crash.soak import soak
from tests.crash.sweep import Outcome, Sweep, around, errors, kills, summary, with_recoveries
from tests.crash.world import World
from tests.support.redis_server import server_or_skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Return 0 if the service survived every point."""
    asked = _parsed(arguments)
    worlds = {
        "machine": local_worlds,
        "redis": redis_worlds,
        "pods": scripted_worlds,
        "kueue": kueue_worlds,
        "cluster": remote_worlds,
    }[asked.on]
    with tempfile.TemporaryDirectory(prefix="crash-points-") as folder, worlds(Path(folder)) as make:
        if asked.soak:
            return _soak(make("soak"), asked)
        with closing(Sweep(make, asked.lanes)) as sweep:
            outcomes = sweep.run(_wanted(sweep, asked), _print)
    print("\n".join(("", *summary(outcomes))))
    return 1 if any(outcome.problems for outcome in outcomes) else 0


@contextmanager
def local_worlds(folder: Path) -> Iterator[Callable[[str], World]]:
    """Create worlds of processes and SQLite."""
    yield lambda name: LocalWorld(folder / name)


@contextmanager
def redis_worlds(folder: Path) -> Iterator[Callable[[str], World]]:
    """Create worlds of processes and Redis. The server ends with the block."""
    redis = server_or_skip(folder / "redis")
    redis.start()
    try:
        yield lambda name: LocalWorld(folder / name, redis)
    finally:
        redis.end()


@contextmanager
def scripted_worlds(folder: Path) -> Iterator[Callable[[str], World]]:
    """Create worlds of pods in an API server in memory, and SQLite."""
    from tests.crash.scripted import ScriptedWorld

    yield lambda name: ScriptedWorld(folder / name)


@contextmanager
def kueue_worlds(folder: Path) -> Iterator[Callable[[str], World]]:
    """Create the same worlds with a stand-in for Kueue, which decides which jobs run."""
    from tests.crash.scripted import KueueWorld

    yield lambda name: KueueWorld(folder / name)


@contextmanager
def remote_worlds(folder: Path) -> Iterator[Callable[[str], World]]:
    """Create worlds of pods and Redis.

    The cluster is started and stays up; the Redis server ends with the block.
    """
    from tests.crash.remote import RemoteWorld
    from tests.support.cluster import Cluster

    cluster = Cluster.up()
    image = cluster.load_program_image()
    redis = server_or_skip(folder / "redis")
    redis.start()
    try:
        yield lambda name: RemoteWorld(cluster, redis, image, folder / name)
    finally:
        redis.end()


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/crash-points", description=__doc__)
    parser.add_argument("--on", choices=("machine", "redis", "pods", "kueue", "cluster"), default="machine")
    parser.add_argument("--kinds", choices=("kills", "errors", "recoveries"), nargs="*", default=[])
    parser.add_argument("--sample", type=int, metavar="N", help="try only N random points of each kind")
    parser.add_argument(
        "--around",
        metavar="NAME",
        help='try only calls around the first whose name contains NAME: "update to evicted"',
    )
    parser.add_argument(
        "--seed", type=int, default=random.randrange(10**6), help="seed of the random choices"
    )
    parser.add_argument("--lanes", type=int, default=4, help="number of services at a time")
    parser.add_argument(
        "--soak", type=float, metavar="SECONDS", help="run random jobs, kills and errors instead"
    )
    parser.add_argument(
        "--faults",
        nargs="*",
        metavar="FAULT",
        help='one run with these faults, the first at the first start, and so on: "84 kill before"',
    )
    return parser.parse_args(arguments)


def _wanted(sweep: Sweep, asked: argparse.Namespace) -> list[tuple[str, ...]]:
    if asked.faults:
        return [tuple(asked.faults)]
    print(f"seed {asked.seed}")
    calls = sweep.reference()
    if asked.around:
        calls = around(calls, asked.around)
    every = {
        "kills": kills(calls),
        "errors": errors(calls),
        "recoveries": with_recoveries(kills(calls), asked.seed),
    }
    dice = random.Random(asked.seed)
    tried = []
    for kind in asked.kinds or every:
        found = every[kind]
        tried += dice.sample(found, min(asked.sample, len(found))) if asked.sample else found
    print(f"{len(calls)} calls to the outside; {len(tried)} points")
    return tried


def _soak(world: World, asked: argparse.Namespace) -> int:
    print(f"seed {asked.seed}", flush=True)
    with closing(world), closing(ForkServer(world.wraps)) as forks:
        record = soak(forks, world, asked.seed, asked.soak)
    print("\n".join((str(record), *record.problems, record.log)))
    return 1 if record.problems else 0


def _print(outcome: Outcome) -> None:
    if outcome.problems:
        print(f"\n{outcome}\n{outcome.log}", flush=True)
    else:
        print(".", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())

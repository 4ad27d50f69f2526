"""The Redis store: calls of Train compared with SQLite, time until a killed service is ready, memory of a
job.

Train: one client process with 64 calls in flight calls three services in turn: on SQLite, on Redis with
`appendfsync everysec`, and on Redis with `always`. With SQLite and with `always`, every job is on the disk
when its call returns. The Redis servers run on the same machine as the services and the client.

Ready: as in idle.py. After a kill -9, the new leader has to wait for the end of the old lease.

Memory: how much Redis's `used_memory` (INFO) grows when 20,000 jobs are submitted, divided by their number.
"""

import asyncio
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.idle import ready
from benchmarks.support import (
    ALGORITHM,
    Client,
    Filling,
    Row,
    fill,
    group_of_one,
    interleaved,
    many,
    ratio,
    request,
    run_alone,
    service,
    workspace,
)
from job_tracker.domain.job_spec import JobSpec
from job_tracker.store.jobs import RequestKey
from job_tracker.store.redis import Address, RedisStore
from tests.support.redis_server import MISSING, RedisServer, find_server


def measure(quick: bool) -> list[Row]:
    if find_server() is None:
        return [Row("redis", f"not measured: {MISSING}")]
    return [*_train(quick), *_ready(quick), _memory(2_000 if quick else 20_000)]


@contextmanager
def running(folder: Path, *options: str) -> Iterator[RedisServer]:
    """Run a Redis server with an append-only file (AOF) during the block."""
    program = find_server()
    assert program is not None, MISSING
    server = RedisServer(program, folder / "redis")
    server.start(*options)
    try:
        yield server
    finally:
        server.end()


def _train(quick: bool) -> list[Row]:
    seconds, rounds = (0.5, 5) if quick else (0.8, 15)
    with workspace() as folder, ExitStack() as stack:
        client = stack.enter_context(closing(Client()))
        fill(folder / "sqlite", Filling())
        services = [stack.enter_context(service(folder / "sqlite"))]
        for fsync in ("everysec", "always"):
            redis = stack.enter_context(running(folder / fsync, "--appendfsync", fsync))
            server = stack.enter_context(service(folder / fsync, store__url=redis.url))
            with server.stub() as stub:  # a job that holds the capacity, so that further jobs do not start
                stub.Train(request(RUN_SECONDS="forever"))
            services.append(server)
        sqlite, *on_redis = interleaved(
            rounds,
            *(
                lambda server=each: client.calls_per_second(server, "Train", seconds=seconds)
                for each in services
            ),
        )
    return [
        Row(
            f"redis: Train calls/s, appendfsync {fsync}, against SQLite",
            f"{statistics.median(rates):,.0f}/s",
            f"{statistics.median(sqlite):,.0f}/s",
            f"{ratio(rates, sqlite):.2f}",
            "≥ 1",
            ratio(rates, sqlite) >= 1,
        )
        for fsync, rates in zip(("everysec", "always"), on_redis, strict=True)
    ]


def _ready(quick: bool) -> list[Row]:
    with workspace() as folder, running(folder) as redis:
        return ready(100 if quick else 1_000, "redis: ready", within=2, store__url=redis.url)


def _memory(count: int) -> Row:
    with workspace() as folder, running(folder) as redis:
        before = _used(redis)
        asyncio.run(_submit(redis.url, count))
        each = (_used(redis) - before) / count
    name = f"redis: memory a job, {count:,} of them"
    return Row(name, f"{each:,.0f} bytes", target="≤ 2,500 bytes", met=each <= 2500)


def _used(redis: RedisServer) -> int:
    return int(redis.ask("INFO", "memory")["used_memory"])


async def _submit(url: str, count: int) -> None:
    metadata = request().metadata
    spec = JobSpec(
        group=group_of_one(),
        algorithm=ALGORITHM,
        dataset_id=metadata.dataset_id,
        dataset_version=metadata.train_data_version_hash,
        name=metadata.name,
        model_name=metadata.output_model_name,
        parameters=dict(metadata.parameters),
        environment=dict(metadata.parameters),
        data_uri="/data/versionedDatasets/1/v1",
        model_root="/data/models/my-model",
        checkpoint_root="/data/checkpoints",
    )
    store = await RedisStore.open(Address(url))

    async def submit(number: int) -> None:
        key = RequestKey(f"{number:032x}", number.to_bytes(32))
        await store.submit(spec, datetime.now(UTC), key, sys.maxsize)

    try:
        await many(submit, range(count))
    finally:
        await store.close()


if __name__ == "__main__":
    run_alone(measure)

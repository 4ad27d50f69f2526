"""Checks whether a server can keep jobs. A refusal is one line: the reason, and the remedy if it is known."""

import asyncio
import logging
import secrets
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError

from job_tracker.domain.errors import StoreRefused
from job_tracker.store.redis import keys, scripts
from job_tracker.store.redis.connection import Connection, explain

log = logging.getLogger(__name__)

_SECRET_BYTES = 32


async def open_checked(connection: Connection, memory: Path | None) -> str:
    """Return the id of the store on the server; create the store if there is none. Raises StoreRefused.

    If the server is refused, no job was changed, but a store of an earlier version may have been upgraded.
    `memory` is a file in which the service keeps the id of its store; None: no file. With this file, a
    restarted service detects that the server has lost its data.
    """
    address = connection.address
    try:
        async with asyncio.timeout(2 * connection.answer_seconds):
            await _check_server(connection)
            return await _open(connection, memory)
    except BusyLoadingError as error:
        raise StoreRefused(f"{address}: is still loading its data; start again in a moment") from error
    except AuthenticationError as error:
        raise _access_denied(connection, error) from error
    except ResponseError as error:
        if str(error).startswith(("NOAUTH", "WRONGPASS", "NOPERM")):
            raise _access_denied(connection, error) from error
        raise StoreRefused(f"{address}: cannot be used as the job store: {explain(error)}") from error
    except (RedisError, OSError, TimeoutError) as error:
        raise StoreRefused(f"{address}: cannot be reached: {explain(error)}") from error


def problem_of(info: Mapping[str, Any], save: str | None) -> str | None:
    """Return the reason why a server with this `info` is refused; None if it is accepted.

    `info` is the server's answer to INFO. `save` is the server's setting for RDB snapshots; None: the setting
    was not read.
    """
    if info.get("role", "master") != "master":
        return "is a read-only replica; give the address of its primary"
    policy = info.get("maxmemory_policy", "noeviction")
    if int(info.get("maxmemory", 0)) and policy != "noeviction":
        return (
            f"evicts keys when its memory is full, and so loses jobs (maxmemory-policy {policy}); "
            "set maxmemory-policy noeviction"
        )
    if not int(info.get("aof_enabled", 0)) and save == "":
        return "keeps nothing on disk, so a restart would lose every job; set appendonly yes"
    return None


async def _check_server(connection: Connection) -> None:
    client: Any = connection.client
    await client.ping()
    try:
        info = await client.info()
    except ResponseError as error:
        log.warning(
            "%s: its configuration cannot be read, so it is not checked: %s", connection.address, error
        )
        return
    save: str | None = None
    if not int(info.get("aof_enabled", 0)):
        try:
            save = (await client.config_get("save")).get("save", "")
        except ResponseError as error:
            log.warning(
                "%s has no AOF, and the service cannot find out whether it takes snapshots: %s",
                *(connection.address, error),
            )
        else:
            log.warning(
                "%s has no AOF: if it fails, writes since its last snapshot are lost; set appendonly yes",
                connection.address,
            )
    if problem := problem_of(info, save):
        raise StoreRefused(f"{connection.address}: {problem}")


async def _open(connection: Connection, memory: Path | None) -> str:
    address = connection.address
    remembered = await asyncio.to_thread(_recall, memory)
    answer = await connection.evaluate(
        *(scripts.OPEN, keys.SCHEMA, str(uuid.uuid4()), datetime.now(UTC).isoformat()),
        *(secrets.token_hex(_SECRET_BYTES), remembered),
    )
    if answer[0] == b"lost":
        raise StoreRefused(_lost(connection, memory))
    if answer[0] == b"damaged":
        raise StoreRefused(
            f"{address}: has jobs but no {keys.meta(address.prefix)}; restore its data from a backup, or "
            "choose another store.prefix"
        )
    schema, store = int(answer[1]), answer[2].decode()
    if schema > keys.SCHEMA:
        raise StoreRefused(
            f"{address}: was written by a newer version of this service (schema {schema}; this one knows "
            f"{keys.SCHEMA}); start that version, or choose another store.prefix"
        )
    if memory is not None and not remembered:
        await asyncio.to_thread(_remember, memory, store)
    return str(store)


def _recall(memory: Path | None) -> str:
    try:
        return memory.read_text().strip() if memory is not None else ""
    except OSError:
        return ""


def _remember(memory: Path, store: str) -> None:
    try:
        memory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        memory.write_text(store + "\n")
    except OSError as error:
        log.warning("a loss of the job store's data would not be noticed after a restart: %s", error)


def _lost(connection: Connection, memory: Path | None) -> str:
    return (
        f"{connection.address}: has lost its data: it is not the store that was used here before. "
        f"Restore its data; or remove {memory} to start with the present store"
    )


def _access_denied(connection: Connection, error: Exception) -> StoreRefused:
    return StoreRefused(f"{connection.address}: denies access ({explain(error)}); check store.url")

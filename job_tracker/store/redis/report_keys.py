"""The keys of report tokens in Redis."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from job_tracker.domain.audit import AuditEvent
from job_tracker.domain.report_key import MOST_KEYS, ReportKey
from job_tracker.store.redis import scripts
from job_tracker.store.redis.access import Run
from job_tracker.store.redis.audit import argument_of


class RedisReportKeys:
    """The part of a store that keeps the keys of report tokens; see ReportKeyStore."""

    def __init__(self, run: Run) -> None:
        self.__run = run

    async def report_keys(self) -> Sequence[ReportKey]:
        _, found = await self.__run(scripts.REPORT_KEYS)
        return [_key_of(*parts) for parts in found]

    async def rotate_report_key(
        self, secret: bytes, at: datetime, by: str, *, event: AuditEvent | None = None
    ) -> ReportKey | None:
        outcome, *rest = await self.__run(
            *(scripts.REPORT_KEY_ROTATE, argument_of(event)),
            *(secret.hex(), repr(at.timestamp()), by, MOST_KEYS),
        )
        return _key_of(*rest[0]) if outcome == b"key" else None

    async def remove_report_key(
        self, key_id: int, at: datetime, *, event: AuditEvent | None = None
    ) -> ReportKey | None:
        outcome, *rest = await self.__run(
            scripts.REPORT_KEY_REMOVE, argument_of(event), key_id, repr(at.timestamp())
        )
        return _key_of(*rest[0]) if outcome == b"key" else None

    async def purge_report_keys(self) -> Sequence[int]:
        _, gone = await self.__run(scripts.REPORT_KEY_PURGE)
        return [int(key_id) for key_id in gone]


def _key_of(key_id: bytes, pairs: Sequence[bytes], attempts: Sequence[bytes]) -> ReportKey:
    values = {name.decode(): value.decode() for name, value in _pairs(pairs)}
    return ReportKey(
        id=int(key_id),
        secret=bytes.fromhex(values["secret"]),
        made_at=_moment(values.get("made_at")),
        made_by=values.get("made_by", ""),
        replaced_at=_moment(values.get("replaced_at")),
        removed_at=_moment(values.get("removed_at")),
        attempts={int(job_id): int(attempt) for job_id, attempt in _pairs(attempts)},
    )


def _pairs(flat: Sequence[bytes]) -> Any:
    return zip(flat[::2], flat[1::2], strict=True)


def _moment(text: str | None) -> datetime | None:
    return datetime.fromtimestamp(float(text), UTC) if text else None

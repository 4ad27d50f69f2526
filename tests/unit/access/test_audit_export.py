"""The file of audit events: complete and without doubles, however the service ends or the file is rotated."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from job_tracker.access import audit_export
from job_tracker.access.audit_export import AuditExport, line_of
from job_tracker.domain.audit import AuditEvent, Outcome
from job_tracker.store.base import Store
from job_tracker.store.sqlite import SqliteStore
from tests.support.jobs import NOON
from tests.support.patience import PATIENCE


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await SqliteStore.open(tmp_path / "jobs.db")
    yield store
    await store.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def export_of(store: Store, file: Path) -> AuditExport:
    """The export of a service that starts."""
    return AuditExport(store, file, file.with_name("position"))


async def happen(store: Store, *targets: str) -> None:
    at = NOON + timedelta(seconds=len(await store.events_after(0, 1000)))
    events = [AuditEvent(at=at, action="cancel", outcome=Outcome.DONE, target=each) for each in targets]
    await store.add_events(events)


def lines(file: Path) -> list[str]:
    content = file.read_text()
    assert not content or content.endswith("\n")
    return [json.loads(line)["target"] for line in content.splitlines()]


async def test_a_line_has_every_field(store: Store, file: Path) -> None:
    event = AuditEvent(
        at=NOON,
        action="revoke_token",
        outcome=Outcome.DENIED,
        caller="ada\n☃",
        means="token",
        credential="aaaaaaaa",
        address="ipv4:192.0.2.1",
        project="vision",
        target="token bbbbbbbb",
        detail="name ci",
        count=2,
        request_id="r-1",
    )
    await store.add_events([event])
    await export_of(store, file).export()
    [line] = file.read_text().splitlines()
    assert json.loads(line) == {
        "id": 1795262400000000,
        "at": "2026-11-21T12:00:00+00:00",
        "outcome": "denied",
        "action": "revoke_token",
        "project": "vision",
        "target": "token bbbbbbbb",
        "detail": "name ci",
        "count": 2,
        "caller": "ada\n☃",
        "means": "token",
        "token_id": "aaaaaaaa",
        "address": "ipv4:192.0.2.1",
        "request_id": "r-1",
    }


async def test_lines_are_in_the_order_of_events_and_come_once(
    store: Store, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_export, "_BATCH", 2)
    export = export_of(store, file)
    await happen(store, "1", "2", "3")
    await export.export()
    await export.export()
    await happen(store, "4", "5")
    await export.export()
    await export_of(store, file).export()
    assert lines(file) == ["1", "2", "3", "4", "5"]


async def test_a_kill_within_a_batch_loses_and_doubles_nothing(store: Store, file: Path) -> None:
    """The file may end anywhere in the batch, and the position is that of the batch before."""
    await happen(store, "1", "2")
    await export_of(store, file).export()
    before, position = file.read_bytes(), file.with_name("position").read_text()
    await happen(store, "3", "4")
    await export_of(store, file).export()
    whole = file.read_bytes()
    for length in {*range(len(before), len(whole), 17), len(before) + 1, len(whole) - 1, len(whole)}:
        file.write_bytes(whole[:length])
        file.with_name("position").write_text(position)
        await export_of(store, file).export()
        assert file.read_bytes() == whole, length


async def test_a_rotated_file_is_continued_in_a_new_one(store: Store, file: Path) -> None:
    export = export_of(store, file)
    await happen(store, "1")
    await export.export()
    file.rename(file.with_name("audit.1"))
    await happen(store, "2")
    await export.export()
    assert (lines(file), lines(file.with_name("audit.1"))) == (["2"], ["1"])
    file.rename(file.with_name("audit.2"))
    again = export_of(store, file)
    await again.export()
    await happen(store, "3")
    await again.export()
    assert lines(file) == ["3"]


async def test_an_emptied_file_goes_on(store: Store, file: Path) -> None:
    export = export_of(store, file)
    await happen(store, "1")
    await export.export()
    file.write_text("")
    await happen(store, "2")
    await export.export()
    assert lines(file) == ["2"]


async def test_without_its_position_the_file_says_where_it_ends(store: Store, file: Path) -> None:
    await happen(store, "1")
    await export_of(store, file).export()
    for content in (None, "", "nonsense"):
        if content is None:
            file.with_name("position").unlink()
        else:
            file.with_name("position").write_text(content)
        await export_of(store, file).export()
        assert lines(file) == ["1"]


async def test_what_cannot_be_written_is_written_later(store: Store, file: Path) -> None:
    export = export_of(store, file)
    await happen(store, "1")
    await export.export()
    file.rename(file.with_name("audit.1"))
    file.mkdir()
    await happen(store, "2")
    with pytest.raises(OSError):
        await export.export()
    file.rmdir()
    await export.export()
    assert lines(file) == ["2"]


async def test_two_services_that_share_a_file_write_each_line_once(store: Store, file: Path) -> None:
    first = export_of(store, file)
    second = AuditExport(store, file, file.with_name("position of the second"))
    for target in ("1", "2", "3"):
        await happen(store, target)
        await first.export()
        await second.export()
    assert lines(file) == ["1", "2", "3"]


def test_a_line_is_one_line() -> None:
    event = AuditEvent(at=NOON, action="cancel", outcome=Outcome.DONE, detail="a\nb\r\x85\u2028")
    assert len(line_of(event).decode().splitlines()) == 1


async def test_the_last_events_are_exported_at_the_end(
    store: Store, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_export, "_CLOSING_SECONDS", PATIENCE)
    export = export_of(store, file)
    await happen(store, "1")
    await export.close()
    assert lines(file) == ["1"]
    file.unlink()
    file.mkdir()
    await happen(store, "2")
    await export.close()  # the next service exports it


async def test_it_exports_by_itself_and_says_once_why_it_cannot(
    store: Store, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit_export, "_POLL_SECONDS", 0.01)
    file.mkdir()
    await happen(store, "1")
    running = asyncio.create_task(export_of(store, file).run())
    while not caplog.records:
        await asyncio.sleep(0.01)
    file.rmdir()
    while not file.exists() or not lines(file):
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait([running])
    assert lines(file) == ["1"]
    [message] = [record.getMessage() for record in caplog.records]
    assert message.startswith(f"audit.file: events cannot be written to {file}; they stay in the store: ")

"""The operations on trees: turns, and bounds on the time of an upload."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from job_tracker.domain.audit import AuditEvent, Outcome
from job_tracker.domain.caller import Caller, Role
from job_tracker.domain.errors import Forbidden, LimitExceeded, UnknownReference
from job_tracker.domain.rights import PROGRAM_RIGHTS
from job_tracker.jobs import unlimited
from job_tracker.trees.operations import Piece, Pieces, Programs, UploadTooLong
from job_tracker.trees.store import TreeStore
from tests.support.callers import caller_with
from tests.support.trees import manifest_of, sha256_of

CALLER = caller_with(Role.SUBMITTER)
CONTENT = b"x" * 100
TREE, TEXT = manifest_of({"train.py": CONTENT})
HALF = Pieces(TREE, (Piece(sha256_of(CONTENT), 0, CONTENT[:50]),))


async def once(part: tuple[str, bytes]) -> AsyncIterator[tuple[str, bytes]]:
    yield part


async def half_and_nothing_more() -> AsyncIterator[Pieces]:
    yield HALF
    await asyncio.Event().wait()


@pytest.fixture
def store(tmp_path: Path) -> TreeStore:
    return TreeStore(tmp_path / "programs")


@pytest.mark.parametrize(
    ("bound", "error"), [({"patience": 0.2}, LimitExceeded), ({"most_seconds": 0.2}, UploadTooLong)]
)
async def test_an_upload_that_stalls_ends_and_keeps_what_has_arrived(
    store: TreeStore, bound: dict[str, Any], error: type[Exception]
) -> None:
    await Programs(store, limits_of=unlimited).put_manifest(CALLER, once((TREE, TEXT)))
    slow = Programs(store, limits_of=unlimited, **bound)
    with pytest.raises(error, match="continue with a new call"):
        await slow.upload_files(CALLER, half_and_nothing_more())
    [missing] = (await slow.find_tree(CALLER, TREE)).missing
    assert missing.received == 50


async def test_uploads_of_one_caller_leave_turns_for_others(store: TreeStore) -> None:
    programs = Programs(store, limits_of=unlimited)
    await programs.put_manifest(CALLER, once((TREE, TEXT)))
    uploads = [asyncio.create_task(programs.upload_files(CALLER, half_and_nothing_more())) for _ in range(20)]
    other = caller_with(Role.SUBMITTER, name="bob")
    assert (await programs.put_manifest(other, once((TREE, TEXT)))).is_known
    assert (await programs.find_tree(CALLER, TREE)).is_known, "finding a tree never waits for uploads"
    for upload in uploads:
        upload.cancel()
    await asyncio.gather(*uploads, return_exceptions=True)
    assert (await programs.find_tree(CALLER, TREE)).is_known


async def test_callers_who_fill_all_turns_do_not_keep_others_out(store: TreeStore) -> None:
    programs = Programs(store, limits_of=unlimited, share_seconds=0.2)
    await programs.put_manifest(CALLER, once((TREE, TEXT)))
    hostile = [caller_with(Role.SUBMITTER, name=name) for name in ("eve", "mallory")]
    uploads = [
        asyncio.create_task(programs.upload_files(each, half_and_nothing_more()))
        for each in hostile * 4  # all eight turns
    ]
    await asyncio.sleep(0)
    other = caller_with(Role.SUBMITTER, name="bob")
    async with asyncio.timeout(50):  # their patience is 60 s
        assert (await programs.put_manifest(other, once((TREE, TEXT)))).is_known
    ended = [each for each in uploads if each.done()]
    with pytest.raises(
        UploadTooLong, match="other uploads have to get a turn, too; continue with a new call"
    ):
        ended[0].result()
    for upload in uploads:
        upload.cancel()
    await asyncio.gather(*uploads, return_exceptions=True)


async def test_only_projects_that_exist_have_trees(store: TreeStore) -> None:
    programs = Programs(store, limits_of=lambda _: None)
    with pytest.raises(UnknownReference, match="vision doesn't exist"):
        await programs.find_tree(CALLER, TREE)


CALLS: dict[str, Callable[[Programs, Caller], Any]] = {
    "find_tree": lambda programs, caller: programs.find_tree(caller, TREE),
    "put_manifest": lambda programs, caller: programs.put_manifest(caller, once((TREE, TEXT))),
    "upload_files": lambda programs, caller: programs.upload_files(caller, half_and_nothing_more()),
}


@pytest.mark.parametrize("operation", PROGRAM_RIGHTS)
async def test_every_denial_is_noted_once(store: TreeStore, operation: str) -> None:
    noted: list[AuditEvent] = []
    programs = Programs(store, limits_of=unlimited, note=noted.append)
    for role in (None, Role.VIEWER):
        with pytest.raises(Forbidden):
            await CALLS[operation](programs, caller_with(role))
        event = noted.pop()
        assert (event.action, event.outcome, event.caller, event.project) == (
            operation,
            Outcome.DENIED,
            "ada",
            "vision",
        )
        assert not noted

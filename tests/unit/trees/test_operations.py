"""The operations on trees: turns, and bounds on the time of an upload."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from job_tracker.domain.audit import AuditEvent, Outcome
from job_tracker.domain.caller import Caller, Role
from job_tracker.domain.errors import Forbidden, LimitExceeded, UnknownReference
from job_tracker.domain.rights import PROGRAM_RIGHTS
from job_tracker.jobs import unlimited
from job_tracker.trees import operations
from job_tracker.trees.operations import Piece, Pieces, Programs, UploadTooLong
from job_tracker.trees.store import TreeStore
from job_tracker.trees.uploads import Upload
from tests.support.callers import caller_with
from tests.support.patience import PATIENCE
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
    ("bound", "error"), [({"patience": 1000}, LimitExceeded), ({"most_seconds": 1000}, UploadTooLong)]
)
async def test_an_upload_that_stalls_ends_and_keeps_what_has_arrived(
    store: TreeStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bound: dict[str, Any],
    error: type[Exception],
) -> None:
    others = {"patience": 10_000, "most_seconds": 10_000}
    programs = Programs(store, limits_of=unlimited, **{**others, **bound})
    await programs.put_manifest(CALLER, once((TREE, TEXT)))

    async def half_and_a_long_pause() -> AsyncIterator[Pieces]:
        yield HALF
        while not any(file.is_file() and file.stat().st_size == 50 for file in tmp_path.rglob("*")):
            await asyncio.sleep(0.01)
        loop, now = asyncio.get_running_loop(), time.monotonic
        monkeypatch.setattr(loop, "time", lambda: now() + 2000)
        await asyncio.Event().wait()

    with pytest.raises(error, match="continue with a new call"):
        await programs.upload_files(CALLER, half_and_a_long_pause())
    [missing] = (await programs.find_tree(CALLER, TREE)).missing
    assert missing.received == 50


async def test_an_upload_that_is_cancelled_while_it_is_opened_is_closed(
    store: TreeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, answers = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Upload:
        begun.set()
        answers.wait(PATIENCE)
        return Upload(*arguments)

    monkeypatch.setattr(operations, "Upload", slow)
    programs = Programs(store, limits_of=unlimited)
    await programs.put_manifest(CALLER, once((TREE, TEXT)))
    uploading = asyncio.create_task(programs.upload_files(CALLER, half_and_nothing_more()))
    await asyncio.to_thread(begun.wait, PATIENCE)
    uploading.cancel()
    await asyncio.sleep(0)
    answers.set()
    with pytest.raises(asyncio.CancelledError):
        await uploading
    assert not [file for file in _open_files() if file.startswith(str(tmp_path))]


def _open_files() -> Iterator[str]:
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            yield str(descriptor.readlink())


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

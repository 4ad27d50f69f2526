"""The uncommitted changes of programs. The changes of a program are a tree of their own, with one file."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from job_tracker.domain.errors import InvalidField, TreeDamaged, UnknownReference
from job_tracker.domain.job import Job
from job_tracker.trees.contents import read_in_threads
from job_tracker.trees.manifest import Manifest
from job_tracker.trees.store import TreeStore

FILE = "changes.diff"
MOST_BYTES = 1 << 20
_PIECE = 256 * 1024


def check(manifest: Manifest) -> None:
    """Raise InvalidField unless the manifest belongs to a tree of changes."""
    if [file.path for file in manifest.files] != [FILE] or manifest.files[0].size > MOST_BYTES:
        raise InvalidField(
            "program.changes.tree",
            f"{manifest.tree} is not a tree of changes; send one whose only file is {FILE}, with at most "
            f"{MOST_BYTES} bytes",
        )


class RecordedChanges:
    """Reads the changes that were recorded with jobs."""

    def __init__(self, store: TreeStore) -> None:
        self._store = store

    async def read(self, job: Job) -> AsyncGenerator[bytes, None]:
        """Yield the text of a job's changes in pieces.

        Raises StorageUnavailable, and UnknownReference if no changes were recorded or they were removed.
        """
        program = job.spec.program
        if program is None or program.changes is None:
            raise UnknownReference("job_id", f"job {job.id} has no uncommitted changes recorded")
        trees = self._store.of(job.spec.project)
        try:
            async with aclosing(read_in_threads(trees.only_file(program.changes.tree, check))) as pieces:
                async for piece in pieces:
                    for begin in range(0, len(piece), _PIECE):
                        yield piece[begin : begin + _PIECE]
        except (TreeDamaged, InvalidField):
            raise UnknownReference(
                "job_id",
                f"the changes of job {job.id} are no longer kept (programs.keep_unused); their hash is "
                f"{program.changes.tree}",
            ) from None

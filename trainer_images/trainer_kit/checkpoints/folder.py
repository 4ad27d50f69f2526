"""The folder of a job's checkpoints, on any file system that fsspec knows.

All that is asked of the storage is that a file which was written, and a list which is asked for, show
what was written before: so do local disks and the object stores. See `names` for what lies there.
"""

import hashlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from trainer_kit import storage
from trainer_kit.checkpoints import durable
from trainer_kit.checkpoints.manifest import Manifest, Part
from trainer_kit.checkpoints.names import Checkpoint, Listing, Run
from trainer_kit.errors import DamagedError, StorageError, SupersededError, TrainingError

_BLOCK = 4 << 20


@contextmanager
def storage_errors(uri: str) -> Iterator[None]:
    """Makes what a storage library raises, which may be anything, a StorageError that can be sent."""
    try:
        yield
    except TrainingError:
        raise
    except Exception as error:
        raise StorageError(f"{uri}: {error or type(error).__name__}") from error


class CheckpointFolder:
    """Where the attempts at one job keep their checkpoints.

    Every method may raise StorageError.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.filesystem, self.path = storage.locate(uri)

    def path_of(self, checkpoint: Checkpoint) -> str:
        """The folder of the checkpoint's parts."""
        return f"{self.path}/{checkpoint}"

    def look(self) -> Listing:
        """What is there now."""
        with storage_errors(self.uri):
            self.filesystem.invalidate_cache()
            try:
                paths = self.filesystem.ls(self.path, detail=False)
            except FileNotFoundError:
                paths = []
            return Listing.of(path.rstrip("/").rpartition("/")[2] for path in paths)

    def begin(self, attempt: int) -> Run:
        """Says that a run of `attempt` begins, which ends the right to publish of all earlier ones.

        Raises SupersededError when a later one has begun already.
        """
        run = Run.after(self.look().runs, attempt)
        with storage_errors(self.uri):
            durable.make_folder(self.filesystem, self.path)
            self.filesystem.pipe_file(f"{self.path}/{run.fence}", b"")
        self.check_not_superseded(run)
        return run

    def check_not_superseded(self, run: Run) -> Listing:
        """What is there now; raises SupersededError when a later run than `run` has begun."""
        listing = self.look()
        if successor := listing.successor_of(run):
            raise SupersededError(
                f"attempt {run.attempt} of this job ends here: attempt {successor.attempt} was started "
                "after it, and goes on from its checkpoints"
            )
        return listing

    def publish(self, checkpoint: Checkpoint, manifest: Manifest) -> None:
        """Makes the checkpoint exist, even after a power cut, once all of its parts are on the disk.

        Raises SupersededError instead when a later run has begun. After a StorageError the checkpoint
        may exist: `is_published` says so.
        """
        self.check_not_superseded(checkpoint.run)
        aside = f"{self.path_of(checkpoint)}/manifest.partial"
        with storage_errors(self.uri):
            self.filesystem.pipe_file(aside, manifest.to_json())
            durable.sync_file(self.filesystem, aside)
            durable.sync_folder(self.filesystem, self.path_of(checkpoint))
            try:
                self.filesystem.mv(aside, f"{self.path}/{checkpoint.manifest}")
            except Exception:
                # An object store copies and then removes: only the second may have failed.
                if not self.is_published(checkpoint):
                    raise
            durable.sync_folder(self.filesystem, self.path)

    def is_published(self, checkpoint: Checkpoint) -> bool:
        """Whether the checkpoint has a manifest that can be read."""
        try:
            self.manifest_of(checkpoint)
        except DamagedError:
            return False
        return True

    def manifest_of(self, checkpoint: Checkpoint) -> Manifest:
        """The checkpoint's manifest; raises DamagedError where that is gone or not whole."""
        with storage_errors(self.uri):
            try:
                text = self.filesystem.cat_file(f"{self.path}/{checkpoint.manifest}")
            except FileNotFoundError as error:
                raise DamagedError("its manifest is gone") from error
        return Manifest.from_json(text)

    def check_part(self, checkpoint: Checkpoint, name: str, expected: Part) -> None:
        """Reads a part; raises DamagedError where it is not what the manifest says."""
        digest, size = hashlib.sha256(), 0
        with storage_errors(self.uri):
            try:
                with self.filesystem.open(f"{self.path_of(checkpoint)}/{name}", "rb") as part:
                    while block := part.read(_BLOCK):
                        digest.update(block)
                        size += len(block)
            except FileNotFoundError as error:
                raise DamagedError(f"{name} is missing") from error
        if Part(size, digest.hexdigest()) != expected:
            raise DamagedError(f"{name} is not what was written ({size} of {expected.size} bytes)")

    def discard(self, checkpoint: Checkpoint) -> None:
        """Removes what was written of a checkpoint, unless it is published."""
        if not self.is_published(checkpoint):
            with storage_errors(self.uri):
                self._remove_parts(checkpoint)

    def tidy(self, run: Run, keep: int, unusable: Collection[Checkpoint] = ()) -> None:
        """Removes all but the newest `keep` checkpoints, those `unusable`, and what earlier runs left.

        Call it only once `publish` has returned: the older checkpoints are all there is until then.
        Nothing is removed once a later run has begun, for it may be reading. One list shows both what
        there is and that nobody has begun: who begins after it finds the newest checkpoint in place.
        Raises SupersededError then.
        """
        listing = self.check_not_superseded(run)
        kept = [checkpoint for checkpoint in listing.published if checkpoint not in unusable][:keep]
        with storage_errors(self.uri):
            for checkpoint in listing.published:
                if checkpoint not in kept:
                    # The manifest first: what is half removed does not exist.
                    self.filesystem.rm_file(f"{self.path}/{checkpoint.manifest}")
                    self._remove_parts(checkpoint)
            self._remove_leftovers(listing, run)

    def remove_leftovers(self, run: Run) -> None:
        """Removes what earlier runs began to write and did not publish; as `tidy` does."""
        listing = self.check_not_superseded(run)
        with storage_errors(self.uri):
            self._remove_leftovers(listing, run)

    def _remove_leftovers(self, listing: Listing, run: Run) -> None:
        for leftover in listing.unpublished:
            self._remove_parts(leftover)
        for earlier in listing.runs - {run}:
            self.filesystem.rm_file(f"{self.path}/{earlier.fence}")

    def _remove_parts(self, checkpoint: Checkpoint) -> None:
        try:
            self.filesystem.rm(self.path_of(checkpoint), recursive=True)
        except FileNotFoundError:
            return  # an object store has no empty folders

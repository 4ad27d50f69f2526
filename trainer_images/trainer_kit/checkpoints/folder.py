"""The folder of a job's checkpoints, on any file system of fsspec.

The only requirement on the storage is strong consistency: reads and lists show all earlier writes. Local
disks and object stores provide it. See `names` for the content of the folder.
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
    """Turn any error of a storage library into a StorageError, which can be sent to other processes."""
    try:
        yield
    except TrainingError:
        raise
    except Exception as error:
        raise StorageError(f"{uri}: {error or type(error).__name__}") from error


class CheckpointFolder:
    """The checkpoints of all attempts of one job. Every method may raise StorageError."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.filesystem, self.path = storage.locate(uri)

    def path_of(self, checkpoint: Checkpoint) -> str:
        """Return the path of the folder with the checkpoint's parts."""
        return f"{self.path}/{checkpoint}"

    def look(self) -> Listing:
        """Return the content of the folder."""
        with storage_errors(self.uri):
            self.filesystem.invalidate_cache()
            try:
                paths = self.filesystem.ls(self.path, detail=False)
            except FileNotFoundError:
                paths = []
            return Listing.of(path.rstrip("/").rpartition("/")[2] for path in paths)

    def begin(self, attempt: int) -> Run:
        """Start a run of `attempt`, and return it. From then on, no earlier run begins to publish.

        Raises SupersededError if a later run has already started.
        """
        run = Run.after(self.look().runs, attempt)
        with storage_errors(self.uri):
            durable.make_folder(self.filesystem, self.path)
            self.filesystem.pipe_file(f"{self.path}/{run.fence}", b"")
        self.check_not_superseded(run)
        return run

    def check_not_superseded(self, run: Run) -> Listing:
        """Return the content of the folder. Raises SupersededError if a later run than `run` has started."""
        listing = self.look()
        if successor := listing.successor_of(run):
            raise SupersededError(
                f"attempt {run.attempt} of this job stops: attempt {successor.attempt} was started after it "
                "and continues from its checkpoints"
            )
        return listing

    def publish(self, checkpoint: Checkpoint, manifest: Manifest) -> None:
        """Make a checkpoint durable and visible by writing its manifest. Its parts must be on disk.

        Raises SupersededError if a later run has started. After a StorageError, the checkpoint may exist: see
        `is_published`.
        """
        self.check_not_superseded(checkpoint.run)
        draft = f"{self.path_of(checkpoint)}/manifest.partial"
        with storage_errors(self.uri):
            self.filesystem.pipe_file(draft, manifest.to_json())
            durable.sync_file(self.filesystem, draft)
            durable.sync_folder(self.filesystem, self.path_of(checkpoint))
            try:
                self.filesystem.mv(draft, f"{self.path}/{checkpoint.manifest}")
            except Exception:
                # An object store moves by a copy and a deletion: perhaps only the deletion has failed.
                if not self.is_published(checkpoint):
                    raise
            durable.sync_folder(self.filesystem, self.path)

    def is_published(self, checkpoint: Checkpoint) -> bool:
        """Return whether the checkpoint has a valid manifest."""
        try:
            self.manifest_of(checkpoint)
        except DamagedError:
            return False
        return True

    def manifest_of(self, checkpoint: Checkpoint) -> Manifest:
        """Return the checkpoint's manifest. Raises DamagedError if it is missing or damaged."""
        with storage_errors(self.uri):
            try:
                text = self.filesystem.cat_file(f"{self.path}/{checkpoint.manifest}")
            except FileNotFoundError as error:
                raise DamagedError("its manifest is missing") from error
        return Manifest.from_json(text)

    def check_part(self, checkpoint: Checkpoint, name: str, expected: Part) -> None:
        """Read a part, and compare it with its entry in the manifest.

        Raises DamagedError if the part is missing or differs.
        """
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
            raise DamagedError(f"{name} does not match the manifest ({size} of {expected.size} bytes)")

    def discard(self, checkpoint: Checkpoint) -> None:
        """Remove the parts of a checkpoint, unless it is published."""
        if not self.is_published(checkpoint):
            with storage_errors(self.uri):
                self._remove_parts(checkpoint)

    def tidy(self, run: Run, keep: int, unusable: Collection[Checkpoint] = ()) -> None:
        """Keep the newest `keep` checkpoints that are not in `unusable`, and remove all others.

        Also remove the parts of unpublished checkpoints, and the files that mark the starts of earlier runs.

        Call this only after `publish` has returned: until then, perhaps only the older checkpoints
        exist. If a later run has started, this raises SupersededError and removes nothing, because that run
        may be reading checkpoints. The checkpoints and the runs come from one listing. So a run that is not
        in this listing starts later, and finds the newest checkpoint, which is kept.
        """
        listing = self.check_not_superseded(run)
        kept = [checkpoint for checkpoint in listing.published if checkpoint not in unusable][:keep]
        with storage_errors(self.uri):
            for checkpoint in listing.published:
                if checkpoint not in kept:
                    # The manifest is removed first, so that a partly removed checkpoint does not count.
                    self.filesystem.rm_file(f"{self.path}/{checkpoint.manifest}")
                    self._remove_parts(checkpoint)
            self._remove_leftovers(listing, run)

    def remove_leftovers(self, run: Run) -> None:
        """Remove the parts of unpublished checkpoints, and the files that mark the starts of earlier runs.

        Raises SupersededError, and removes nothing, if a later run has started.
        """
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

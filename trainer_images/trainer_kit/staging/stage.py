"""Stages a dataset on all ranks of a group."""

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import Tensor

from trainer_kit import steps, storage
from trainer_kit.errors import DataError, GroupError
from trainer_kit.group import Group
from trainer_kit.progress import Reporter
from trainer_kit.staging import pieces, sums
from trainer_kit.staging.kept import Kept
from trainer_kit.staging.peers import Peers, bytes_of
from trainer_kit.staging.pieces import File, Piece, Source
from trainer_kit.staging.settings import Settings
from trainer_kit.staging.ways import Way, bring

log = logging.getLogger(__name__)

_DATA = "data"
_NONE = bytes(hashlib.sha256().digest_size)


@contextmanager
def staged(group: Group, uri: str, reporter: Reporter, settings: Settings | None = None) -> Iterator[str]:
    """Yield the local folder that has all files of the folder `uri`; with DATA_STAGING=none, `uri` itself.

    Every rank must call this. `reporter` reports the bytes that the group has read from storage, the bytes
    that its busiest rank has sent, and the time.

    Raises DataError if there are no files, if they differ from their hashes or between ranks, or if they do
    not fit on the disk or in STAGING_GB. Raises StorageError if storage or the disk fails, GroupError if a
    rank is lost, and ParameterError if a setting in the environment is invalid.
    """
    settings = settings or Settings.from_environment()
    if settings.way is Way.NONE:
        yield uri
        return
    began = time.monotonic()
    peers, source = Peers(group), Source(*storage.locate(uri))
    with ExitStack() as until_used:
        try:
            files = [File(*each) for each in peers.everywhere(source.files() if group.is_master else None)]
            folder = until_used.enter_context(_present(files, uri, settings, source, peers))
            [read] = group.total(source.bytes_read)
            sent = max(int.from_bytes(each) for each in peers.of_each(peers.bytes_sent.to_bytes(8)))
        except RuntimeError as error:
            raise GroupError(f"the group lost a rank while it staged {uri}: {error}") from error
        seconds = time.monotonic() - began
        log.info(
            "staged %d files (%d bytes) by %s in %.1f s: %d bytes read by %d ranks, at most %d sent by one",
            len(files), sum(file.size for file in files), settings.way, seconds, read, group.size, sent,
        )  # fmt: skip
        reporter.report(staging_read_bytes=read, staging_sent_bytes=sent, staging_seconds=seconds)
        yield str(folder)


@contextmanager
def _present(files: list[File], uri: str, settings: Settings, source: Source, peers: Peers) -> Iterator[Path]:
    """Yield a folder with the files, once all ranks have them."""
    if settings.folder is None:
        with TemporaryDirectory(prefix="staging-") as scratch:
            _fill(Path(scratch), files, uri, settings.way, source, peers)
            yield Path(scratch)
        return
    kept = Kept(settings.folder, settings.most_bytes)
    # The key identifies the content: the files of a version do not change, and each version has its own URI.
    key = hashlib.sha256(json.dumps([uri, *files]).encode()).hexdigest()[:32]
    size = sum(file.size for file in files)
    with kept.used(key) as entry:
        was_there, here = entry.exists(), _digest_of_kept(entry, files)
        if was_there and here == _NONE:
            # Remove a damaged copy before waiting for the other ranks: another job can then replace it.
            kept.forget(key)
        of_each = peers.of_each(here)
        if _NONE in of_each or len(set(of_each)) > 1:  # all ranks take part, even those with a good copy
            if here == _NONE:
                kept.make_room(size, key)
            with kept.filling(key) as partial:
                (partial / _DATA).mkdir()
                of_files = sums.written(_fill(partial / _DATA, files, uri, settings.way, source, peers))
                (partial / sums.NAME).write_text(of_files)
                if here not in (_NONE, hashlib.sha256(of_files.encode()).digest()):
                    kept.forget(key)  # the copy differs from storage
        yield entry / _DATA


def _digest_of_kept(entry: Path, files: list[File]) -> bytes:
    """Return a digest of the files that an earlier job has staged here.

    Return _NONE if they are not the files of the dataset, or do not have the hashes that were stored then.
    """
    try:
        noted = (entry / sums.NAME).read_text()
        if sorted(pieces.files_in(entry / _DATA)) != sorted(files):
            return _NONE
        computed = sums.written(sums.computed(entry / _DATA, [file.name for file in files]))
    except FileNotFoundError:  # there are none, or another process has removed them because of damage
        return _NONE
    return hashlib.sha256(computed.encode()).digest() if computed == noted else _NONE


def _fill(
    folder: Path, files: list[File], uri: str, way: Way, source: Source, peers: Peers
) -> dict[str, str]:
    """Copy the files into an empty folder, check them, and return their hashes."""
    size, free = sum(file.size for file in files), shutil.disk_usage(folder).free
    if size > free:
        raise DataError(
            f"the dataset has {size:,} bytes, but only {free:,} are free on the disk of {folder.parent}: "
            "free some space, set STAGING_FOLDER to a folder on a larger disk, or use DATA_STAGING=none"
        )
    pieces.make(folder, files)

    def arrived(piece: Piece, content: Tensor) -> None:
        pieces.write(folder, piece, bytes_of(content))
        steps.OF_PROCESS.has_moved()

    divided = pieces.pieces_of(files, pieces.piece_size(size, peers.size))
    bring(way, divided, source.read, peers, arrived)
    of_files = sums.computed(folder, [file.name for file in files])
    sums.check(folder, of_files, uri)
    sums.agree(of_files, peers)
    return of_files

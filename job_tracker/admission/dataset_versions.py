"""Whether a version of a dataset is there: looked at in its storage, which may be slow, or hang."""

import asyncio
import time
from collections.abc import Mapping

import fsspec

from job_tracker.catalog import Dataset
from job_tracker.common.turns import FairTurns
from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import StorageUnavailable, UnknownReference
from job_tracker.files.remote import in_thread

_ANY_DATASET = "*"
_SEEN_SECONDS = 10.0
_MOST_SEEN = 256
_PATIENCE_SECONDS = 10.0
_MOST_LOOKS = 64
_MOST_OF_ONE_CALLER = 48


class DatasetVersions:
    """Finds versions of the configured datasets ("*" is any other).

    Calls that ask for the same version share a look. Each is taken in a thread of its own, and callers take
    turns, so that a storage that hangs holds up nothing but jobs that want its data.
    """

    def __init__(
        self,
        datasets: Mapping[str, Dataset],
        *,
        patience: float = _PATIENCE_SECONDS,
        turns: FairTurns | None = None,
    ) -> None:
        """`patience` is how many seconds a call waits, for its turn and for the storage."""
        self._datasets = datasets
        self._patience = patience
        self._turns = turns or FairTurns(_MOST_LOOKS, _MOST_OF_ONE_CALLER)
        self._seen: dict[str, float] = {}
        self._looks: dict[str, asyncio.Future[str | None]] = {}

    async def uri_of(self, caller: Caller, dataset_id: str, version: str) -> str:
        """Where the version is. Raises UnknownReference if it is not, StorageUnavailable if nobody knows."""
        dataset = self._datasets.get(dataset_id) or self._datasets.get(_ANY_DATASET)
        if dataset is None:
            known = ", ".join(sorted(self._datasets)) or "none"
            raise UnknownReference("dataset_id", f"{dataset_id!r} doesn't exist; configured are: {known}")
        uri = dataset.folder(dataset_id, version)
        # A version never changes once it is there, so having seen it a moment ago is as good as now.
        if time.monotonic() - self._seen.get(uri, -_SEEN_SECONDS) >= _SEEN_SECONDS:
            if missing := await self._look(caller, uri, dataset.files):
                raise UnknownReference(
                    "train_data_version_hash",
                    f"version {version!r} of dataset {dataset_id!r} doesn't exist: there is no {missing}",
                )
            self._seen.pop(uri, None)  # so that the last seen is the last to be forgotten
            if len(self._seen) >= _MOST_SEEN:
                del self._seen[next(iter(self._seen))]
            self._seen[uri] = time.monotonic()
        return uri

    async def _look(self, caller: Caller, uri: str, files: tuple[str, ...]) -> str | None:
        """The first file that is missing."""
        try:
            async with asyncio.timeout(self._patience):
                look = self._looks.get(uri) or await self._begin(caller, uri, files)
                return await asyncio.shield(look)
        except TimeoutError as error:
            busy = "" if uri in self._looks else f"; {self._turns.length} others are being looked at"
            raise StorageUnavailable(
                f"the dataset at {uri} cannot be looked at: no answer in {self._patience:g} s{busy}"
            ) from error

    async def _begin(self, caller: Caller, uri: str, files: tuple[str, ...]) -> asyncio.Future[str | None]:
        """Take a look once it is the caller's turn, which lasts as long as the look."""
        who = caller.key
        await self._turns.take(who)
        if known := self._looks.get(uri):  # begun by another call meanwhile
            self._turns.give(who)
            return known
        try:
            look = self._looks[uri] = in_thread(lambda: _missing_file(uri, files), f"look at {uri}")
        except BaseException:
            self._turns.give(who)
            raise

        def end(_: object) -> None:
            del self._looks[uri]
            self._turns.give(who)

        look.add_done_callback(end)
        return look


def _missing_file(uri: str, files: tuple[str, ...]) -> str | None:
    try:
        filesystem, folder = fsspec.core.url_to_fs(uri)
        filesystem.invalidate_cache()  # a version that was written a moment ago is there
        for file in files:
            if not filesystem.exists(f"{folder}/{file}"):
                return f"{uri}/{file}"
    except Exception as error:  # each of fsspec's implementations has exceptions of its own
        raise StorageUnavailable(f"the dataset at {uri} cannot be looked at: {error}") from error
    return None

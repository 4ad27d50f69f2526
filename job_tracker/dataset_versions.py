"""Whether a version of a dataset is there: looked at in its storage, which may be slow, or hang."""

import asyncio
import time
from collections.abc import Mapping

import fsspec

from job_tracker.catalog import Dataset
from job_tracker.errors import StorageUnavailable, UnknownReference
from job_tracker.storage import in_thread

_ANY_DATASET = "*"
_SEEN_SECONDS = 10.0
_MOST_SEEN = 256
_PATIENCE_SECONDS = 10.0
_MOST_LOOKS = 64


class DatasetVersions:
    """Finds versions of the configured datasets ("*" is any other).

    Who asks for a version that somebody else is asking for shares the look. Each is taken in a thread of
    its own, so that a storage that hangs holds up nothing but jobs that want its data.
    """

    def __init__(self, datasets: Mapping[str, Dataset], *, patience: float = _PATIENCE_SECONDS) -> None:
        self._datasets = datasets
        self._patience = patience
        self._seen: dict[str, float] = {}
        self._looks: dict[str, asyncio.Future[str | None]] = {}

    async def uri_of(self, dataset_id: str, version: str) -> str:
        """Where the version is. Raises UnknownReference if it is not, StorageUnavailable if nobody knows."""
        dataset = self._datasets.get(dataset_id) or self._datasets.get(_ANY_DATASET)
        if dataset is None:
            known = ", ".join(sorted(self._datasets)) or "none"
            raise UnknownReference("dataset_id", f"{dataset_id!r} doesn't exist; configured are: {known}")
        uri = dataset.folder(dataset_id, version)
        # A version never changes once it is there, so having seen it a moment ago is as good as now.
        if time.monotonic() - self._seen.get(uri, -_SEEN_SECONDS) >= _SEEN_SECONDS:
            if missing := await self._look(uri, dataset.files):
                raise UnknownReference(
                    "train_data_version_hash",
                    f"version {version!r} of dataset {dataset_id!r} doesn't exist: there is no {missing}",
                )
            self._seen.pop(uri, None)  # so that the last seen is the last to be forgotten
            if len(self._seen) >= _MOST_SEEN:
                del self._seen[next(iter(self._seen))]
            self._seen[uri] = time.monotonic()
        return uri

    async def _look(self, uri: str, files: tuple[str, ...]) -> str | None:
        """The first file that is missing."""
        look = self._looks.get(uri)
        if look is None:
            if len(self._looks) >= _MOST_LOOKS:
                raise StorageUnavailable(
                    f"the dataset at {uri} cannot be looked at: {_MOST_LOOKS} others are being looked at"
                )
            look = self._looks[uri] = in_thread(lambda: _missing_file(uri, files), f"look at {uri}")
            look.add_done_callback(lambda _: self._looks.pop(uri, None))
        try:
            async with asyncio.timeout(self._patience):
                return await asyncio.shield(look)
        except TimeoutError as error:
            raise StorageUnavailable(
                f"the dataset at {uri} cannot be looked at: no answer in {self._patience:g} s"
            ) from error


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

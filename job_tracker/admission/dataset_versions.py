"""Checks whether a version of a dataset exists. The dataset's storage may be slow, or hang."""

import asyncio
import time
from typing import Any, Final, NamedTuple

import fsspec

from job_tracker.catalog import Catalog
from job_tracker.catalog.datasets import Dataset
from job_tracker.catalog.entries import dataset_entry_of, most_like, required
from job_tracker.common.turns import FairTurns
from job_tracker.domain.caller import Caller
from job_tracker.domain.errors import StorageUnavailable, UnknownReference
from job_tracker.files.remote import in_thread

_SEEN_SECONDS = 10.0
_MAX_SEEN = 256
_PATIENCE_SECONDS = 10.0
_MAX_CHECKS = 64
_MAX_OF_ONE_CALLER = 48

_MOST_LISTED: Final = 1000
_MOST_EXAMINED: Final = 20
_MOST_NAMED: Final = 5
_LONGEST_NAME: Final = 100


class _Place(NamedTuple):
    """The URI of a version of a dataset, and the files that the version must have."""

    uri: str
    files: tuple[str, ...]
    version: str
    before: str
    """The part of the URI before the name of the version."""
    after: str
    """The part of the URI after the name of the version."""


class DatasetVersions:
    """Finds versions of the catalog's datasets. The entry "*" is for all datasets without their own entry.

    Concurrent calls for the same version share one check. Each check has its own thread, and callers take
    turns. So a storage that hangs delays only the jobs that need its data.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        patience: float = _PATIENCE_SECONDS,
        turns: FairTurns | None = None,
    ) -> None:
        """`patience` is the total number of seconds that a call waits for its turn and for the storage."""
        self._catalog = catalog
        self._patience = patience
        self._turns = turns or FairTurns(_MAX_CHECKS, _MAX_OF_ONE_CALLER)
        self._seen: dict[_Place, float] = {}
        self._checks: dict[_Place, asyncio.Future[str | None]] = {}

    async def uri_of(self, caller: Caller, dataset_id: str, version: str) -> tuple[str, int]:
        """Return the URI of the dataset's version, and the number of the dataset's entry in the catalog.

        This number is `Entry.version`: the number of the change that declared the entry through the API, or 0
        if the configuration declares it.

        Raises UnknownReference if the dataset or the version does not exist, InvalidField if the dataset's
        entry cannot be used, and StorageUnavailable if the storage does not answer.
        """
        datasets = self._catalog.datasets(caller.default_project)
        entry, dataset = required("dataset_id", datasets, dataset_entry_of(dataset_id, datasets))
        uri = dataset.folder(dataset_id, version)
        # Two datasets may share a folder, and require different files in it.
        place = _Place(uri, dataset.files, version, *_around_version(dataset, dataset_id))
        # A version never changes once it exists, so a recent check is as good as a new one.
        if time.monotonic() - self._seen.get(place, -_SEEN_SECONDS) >= _SEEN_SECONDS:
            if missing := await self._check(caller, place):
                raise UnknownReference(
                    "train_data_version_hash",
                    f"version {version!r} of dataset {dataset_id!r} doesn't exist: there is no {missing}",
                )
            self._seen.pop(place, None)  # insert it again, so that the dictionary is in the order of checks
            if len(self._seen) >= _MAX_SEEN:
                del self._seen[next(iter(self._seen))]
            self._seen[place] = time.monotonic()
        return uri, entry.version

    async def _check(self, caller: Caller, place: _Place) -> str | None:
        """Return a text about the missing file; None if no file is missing.

        Raises StorageUnavailable if the check fails or takes too long.
        """
        try:
            async with asyncio.timeout(self._patience):
                check = self._checks.get(place) or await self._begin(caller, place)
                return await asyncio.shield(check)
        except TimeoutError as error:
            busy = (
                "" if place in self._checks else f"; {self._turns.length} other checks are running or waiting"
            )
            raise StorageUnavailable(
                f"the dataset at {place.uri} cannot be checked: no answer in {self._patience:g} s{busy}"
            ) from error

    async def _begin(self, caller: Caller, place: _Place) -> asyncio.Future[str | None]:
        """Wait for a turn of the caller, begin the check, and return it. The turn ends with the check.

        If another call has begun the check in the meantime, return that check.
        """
        await self._turns.take(caller.key)
        if known := self._checks.get(place):  # another call began the check in the meantime
            self._turns.give(caller.key)
            return known
        try:
            check = self._checks[place] = in_thread(lambda: _missing(place), f"check of {place.uri}")
        except BaseException:
            self._turns.give(caller.key)
            raise

        def end(_: object) -> None:
            del self._checks[place]
            self._turns.give(caller.key)

        check.add_done_callback(end)
        return check


def _around_version(dataset: Dataset, dataset_id: str) -> tuple[str, str]:
    """Return the parts of a version's URI before and after the name of the version.

    If the version is not exactly one component of the path in the URI, both parts are empty.
    """
    before, _, after = dataset.uri.partition("{version}")
    if not before.endswith("/") or after[:1] not in ("", "/") or "{version" in before + after:
        return "", ""
    return before.format(dataset_id=dataset_id), after.format(dataset_id=dataset_id)


def _missing(place: _Place) -> str | None:
    """Return a text that names the missing file and a few complete versions; None if no file is missing.

    Raises StorageUnavailable if the storage cannot be read.
    """
    try:
        filesystem, folder = fsspec.core.url_to_fs(place.uri)
        filesystem.invalidate_cache()  # otherwise a version that was just written may not be found
        file = _missing_file(filesystem, folder, place.files)
    except Exception as error:  # fsspec's implementations have their own exceptions
        raise StorageUnavailable(f"the dataset at {place.uri} cannot be checked: {error}") from error
    if file is None:
        return None
    known = ", ".join(_versions(filesystem, place)) or "none was found"
    advice = "to add the missing version, write its files to its folder"
    return f"{place.uri}/{file}; complete versions: {known}; {advice}"


def _missing_file(filesystem: Any, folder: str, files: tuple[str, ...]) -> str | None:
    return next((file for file in files if not filesystem.exists(f"{folder}/{file}")), None)


def _versions(filesystem: Any, place: _Place) -> list[str]:
    """Return a few versions that a job could use. Names that are most like the missing version come first."""
    if not place.before:
        return []
    try:
        _, above = fsspec.core.url_to_fs(place.before)
        found = filesystem.ls(above, detail=False)[:_MOST_LISTED]
        names = {path.rstrip("/").rpartition("/")[2] for path in found}
        known = []
        for name in most_like(place.version, [each for each in names if _is_plain(each)])[:_MOST_EXAMINED]:
            _, folder = fsspec.core.url_to_fs(f"{place.before}{name}{place.after}")
            if _missing_file(filesystem, folder, place.files) is None:
                known.append(name)
                if len(known) == _MOST_NAMED:
                    break
    except Exception:  # the storage may not let the service list folders
        return []
    return known


def _is_plain(name: str) -> bool:
    return name.isprintable() and len(name) <= _LONGEST_NAME

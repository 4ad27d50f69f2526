"""Keeps the files of uploaded programs on the engine, in images.

The files of a tree are a layer on top of the base image, which was chosen for the program. Each project
has a separate image for each tree and base image.

Containers cannot change the image from which they are made, and an image is never incomplete. The engine
copies the folder HOME of the image into the volume of each new container. So a tree is sent to the engine
once, and each rank starts with its own copy. The engine does not remove an image that a container uses.

`ensure` tags an image at each use, so the time of its last tag is the time of its last use.
"""

import asyncio
import hashlib
import logging
import math
from collections.abc import Mapping
from contextlib import aclosing, suppress
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from secrets import token_hex
from weakref import WeakValueDictionary

from job_tracker.backends.docker.client import DockerClient, Json
from job_tracker.backends.docker.engine_errors import Conflict, EngineError, NotFound
from job_tracker.backends.docker.names import ours
from job_tracker.backends.docker.refusals import diagnose_refusal
from job_tracker.backends.shared.instances import ENVIRONMENTS, WORK
from job_tracker.backends.shared.labels import BASE_IMAGE, INSTANCE, MANAGED_BY, MANAGER, PROGRAM_IMAGE
from job_tracker.backends.shared.programs import files_damaged
from job_tracker.domain.errors import BackendUnavailable, LaunchFailed, StorageUnavailable, TreeDamaged
from job_tracker.trees.contents import read_in_threads
from job_tracker.trees.store import TreeStore

log = logging.getLogger(__name__)

_REPOSITORY = "training-service-program"
_FILLING = "training-service-filling-"
"""The prefix of the names of containers from which images are made. These containers are never started."""
_LAYOUT = "2"
"""The version of the layout of the image's folders. Images with another layout are not used."""
_SWEEP_SECONDS = 600.0
_IN_USE_SECONDS = 3600.0
"""An image stays for this time after its last use, because containers may be about to be made from it."""


class KeptPrograms:
    """Makes images with the files of programs, for the service named `instance`."""

    def __init__(
        self, client: DockerClient, trees: TreeStore | None, *, instance: str, keep: timedelta, most: int
    ) -> None:
        """Images that were not used for the time `keep` are removed.

        If there are more than `most` images, the least recently used ones are removed, too. Images that were
        used within the last hour always stay.
        """
        self._client = client
        self._trees = trees
        self._instance = instance
        self._keep = max(keep.total_seconds(), _IN_USE_SECONDS)
        self._most = most
        self._making: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._swept_at = 0.0

    async def ensure(self, image: str, project: str, tree: str) -> str:
        """Return the name of the program's image, which adds the files of a tree to `image`.

        The program's image is made if it does not exist. Raises LaunchFailed if the files are damaged or the
        engine refuses a request, and BackendUnavailable if a retry may help.
        """
        base = str((await self._client.image(image))["Id"])
        parts = (_LAYOUT, self._instance, base, project, tree)
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
        name = f"{_REPOSITORY}:{key}"
        async with self._making.setdefault(key, asyncio.Lock()):  # the lock is dropped once no call uses it
            try:
                await self._client.tag(name, _REPOSITORY, key)
            except NotFound:
                await self._make(base, f"{image} ({base})", project, tree, key)
        return name

    async def sweep(self, now: float) -> None:
        """Remove images that are no longer used, and containers that a killed service has left.

        `now` is in seconds since 1970. Do nothing if the last sweep was less than ten minutes ago.
        """
        if now < self._swept_at + _SWEEP_SECONDS:
            return
        self._swept_at = now
        used = []
        for entry in await self._client.images(self._labels()):
            for name in entry.get("RepoTags") or (entry["Id"],):
                with suppress(NotFound):  # another replica has just removed it
                    used.append((_time_of(await self._client.image(name)), name))
        for number, (used_at, name) in enumerate(sorted(used, reverse=True)):
            if used_at < now - self._keep or (number >= self._most and used_at < now - _IN_USE_SECONDS):
                with suppress(Conflict, NotFound):  # a container uses it, or another replica was faster
                    await self._client.remove_image(name)
                    log.info("removed the files of a program from the engine: %s", name)
        await self._remove_fillings(self._labels(), before=now - _IN_USE_SECONDS)

    async def _remove_fillings(self, labels: list[str], *, before: float) -> None:
        for entry in await self._client.containers(labels):
            is_filling = any(each.startswith(f"/{_FILLING}") for each in entry.get("Names") or ())
            if is_filling and float(entry["Created"]) < before:
                with suppress(Conflict, NotFound):
                    await self._client.remove(entry["Id"])

    def _labels(self) -> list[str]:
        return [*ours(self._instance), PROGRAM_IMAGE]

    async def _make(self, base: str, shown: str, project: str, tree: str, key: str) -> None:
        labels = {MANAGED_BY: MANAGER, INSTANCE: self._instance, PROGRAM_IMAGE: key, BASE_IMAGE: shown}
        name = f"{_FILLING}{key}-{token_hex(4)}"
        try:
            # A service that was killed may have left a container. If another replica is filling a container
            # for this image now, that container is removed, too, and that replica starts again.
            await self._remove_fillings([*ours(self._instance), f"{PROGRAM_IMAGE}={key}"], before=math.inf)
            # The engine creates no container without a command, and the base image may have none.
            container = await self._client.create_container(
                name, {"Image": base, "Labels": labels, "Entrypoint": ["/"]}
            )
            try:
                await self._fill(container, project, tree)
                await self._client.commit(container, _REPOSITORY, key)
            finally:
                with suppress(EngineError):
                    await self._client.remove(container)
        except TreeDamaged as error:
            raise LaunchFailed(files_damaged(str(error))) from error
        except (OSError, StorageUnavailable) as error:
            raise BackendUnavailable(f"the files of the program cannot be read: {error}") from error
        except NotFound as error:
            raise BackendUnavailable(f"the program's files were not kept: {error.message}") from error
        except EngineError as error:
            diagnosis = diagnose_refusal(error, name)
            if diagnosis is None:
                raise
            raise LaunchFailed(diagnosis) from error

    async def _fill(self, container: str, project: str, tree: str) -> None:
        if self._trees is None:
            raise TreeDamaged("this service keeps no uploaded files")
        folder, environments = (str(PurePosixPath(each).relative_to("/")) for each in (WORK, ENVIRONMENTS))
        archive = self._trees.of(project).archive(tree, folder, (environments,))
        async with aclosing(read_in_threads(archive)) as pieces:
            await self._client.put_archive(container, "/", pieces)


def has_files(labels: Mapping[str, str]) -> bool:
    """Return whether a container with these labels was made from an image with the files of its program."""
    return PROGRAM_IMAGE in labels


def _time_of(image: Json) -> float:
    """Return when an image was last tagged, in seconds since 1970."""
    text = str(image["Metadata"]["LastTagTime"])
    return datetime.fromisoformat(text).timestamp() if not text.startswith("0001-") else 0.0

"""Volumes with the Python environments of requirements files: one volume for each project, on the engine.

The engine creates a volume together with the first container that mounts it. The volume gets the owner and
the mode of the folder that the image has at the mount point. The instances make the environments in the
volume, and remove old ones (requirements_runner.py). A volume is removed if no container has used it for a
while.
"""

import hashlib
import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from job_tracker.backends.docker.client import DockerClient
from job_tracker.backends.docker.engine_errors import Conflict, NotFound
from job_tracker.backends.docker.names import ours
from job_tracker.backends.shared.instances import ENVIRONMENTS
from job_tracker.backends.shared.labels import ENVIRONMENTS_OF, INSTANCE, MANAGED_BY, MANAGER

log = logging.getLogger(__name__)

_SWEEP_SECONDS = 600.0


def volume_of(instance: str, project: str) -> Mapping[str, Any]:
    """Return the mount of the project's volume, which the engine creates if there is none."""
    key = hashlib.sha256(f"{instance}\0{project}".encode()).hexdigest()[:32]
    labels = {MANAGED_BY: MANAGER, INSTANCE: instance, ENVIRONMENTS_OF: project}
    return {
        "Type": "volume",
        "Source": f"training-service-environments-{key}",
        "Target": ENVIRONMENTS,
        "VolumeOptions": {"Labels": labels},
    }


class KeptEnvironments:
    """Removes volumes of the service named `instance` that no container has used for the time `keep`.

    The engine does not know when a volume was last used. So the time begins at the last `sweep` that found
    the volume in use or, if there was none, at the first `sweep` of this process that found the volume.
    """

    def __init__(self, client: DockerClient, *, instance: str, keep: timedelta) -> None:
        self._client = client
        self._ours = ours(instance)
        self._keep = keep.total_seconds()
        self._used_at: dict[str, float] = {}
        self._swept_at = 0.0

    async def sweep(self, now: float) -> None:
        """Remove unused volumes. Do nothing if the last sweep was less than ten minutes ago.

        `now` is in seconds since 1970.
        """
        if now < self._swept_at + _SWEEP_SECONDS:
            return
        self._swept_at = now
        volumes = {each["Name"] for each in await self._client.volumes([*self._ours, ENVIRONMENTS_OF])}
        mounted = {
            mount.get("Name")
            for container in await self._client.containers(self._ours)
            for mount in container.get("Mounts") or ()
        }
        self._used_at = {name: now if name in mounted else self._used_at.get(name, now) for name in volumes}
        for name, used_at in self._used_at.items():
            if used_at < now - self._keep:
                with suppress(Conflict, NotFound):  # a new container uses it, or another replica was faster
                    await self._client.remove_volume(name)
                    log.info("removed the Python environments of a project from the engine: %s", name)

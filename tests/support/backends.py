"""Every kind of backend, opened any number of times on a separate world of groups."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from job_tracker.backends.base import Backend, Mark, Observation, snapshot_of
from job_tracker.backends.docker.backend import DockerBackend
from job_tracker.backends.docker.names import ENDING
from job_tracker.backends.docker.plan import DockerPlan
from job_tracker.backends.docker.plan import plan as docker_plan
from job_tracker.backends.docker.plugin import DockerPlugin
from job_tracker.backends.docker.settings import DockerSettings
from job_tracker.backends.fake import FakeBackend, FakeWorld
from job_tracker.backends.kubernetes.backend import KubernetesBackend
from job_tracker.backends.kubernetes.cache import WatchTiming
from job_tracker.backends.kubernetes.gangs import GroupMarks
from job_tracker.backends.kubernetes.labels import group_of, selector
from job_tracker.backends.kubernetes.plan import KubernetesPlan
from job_tracker.backends.kubernetes.plan import plan as kubernetes_plan
from job_tracker.backends.kubernetes.plugin import KubernetesPlugin
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.backends.process.backend import ProcessBackend
from job_tracker.backends.process.plugin import ProcessPlugin
from job_tracker.backends.process.settings import ProcessSettings
from job_tracker.backends.process.spool import ProcessSpool
from job_tracker.catalog import Algorithm
from job_tracker.domain.group import GroupRef, InstanceSpec, Phase
from job_tracker.domain.job import Job
from job_tracker.frameworks.job_environment import ExtraEnvironment, nothing_more
from job_tracker.logs import records
from job_tracker.logs.spool import FolderSpool, Spool
from job_tracker.trees.store import TreeStore
from tests.support.catalog import algorithm_of, resolved
from tests.support.docker_engine import DockerEngine
from tests.support.logs import texts_of
from tests.support.toy_backend.toy_backend import ToyBackend
from tests.support.toy_backend.toy_backend import World as ToyWorld

PROGRAM = Path(__file__).with_name("program.py")
MAX_LOG = 100 << 20
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}"


class World(Protocol):
    """The place in which groups run. It outlives the backends that manage the groups."""

    def open(self) -> Backend:
        """Open another backend on this world, as after a restart of the service."""
        ...

    def spool(self) -> Spool:
        """Open another spool of this world, as another service does."""
        ...

    async def kept(self) -> set[str]:
        """Return the names of stopped groups of which more than the logs is kept."""
        ...

    async def end(self) -> None:
        """Close all backends, and end every group."""
        ...


class ResolvingProcesses(ProcessBackend):
    """Resolves jobs as the tracker does before it launches them."""

    def __init__(
        self, algorithms: Mapping[str, Algorithm], root: Path, settings: ProcessSettings, **more: Any
    ) -> None:
        super().__init__(root, settings, **more)
        self._algorithms = algorithms

    async def launch(self, job: Job) -> Observation:
        plugin = ProcessPlugin(self._settings)
        return await super().launch(resolved(job, self._algorithms, "process", plugin))


class ResolvingPods(KubernetesBackend):
    """Resolves jobs as the tracker does before it launches them."""

    def __init__(
        self,
        algorithms: Mapping[str, Algorithm],
        spool: FolderSpool,
        settings: KubernetesSettings,
        tell: ExtraEnvironment,
        **more: Any,
    ) -> None:
        super().__init__(spool, settings, tell, **more)
        self._algorithms = algorithms

    async def launch(self, job: Job) -> Observation:
        return await super().launch(self._resolved(job))

    async def check(self, job: Job) -> None:
        await super().check(self._resolved(job))

    def _resolved(self, job: Job) -> Job:
        return resolved(job, self._algorithms, "kubernetes", KubernetesPlugin(self._settings))


class ResolvingContainers(DockerBackend):
    """Resolves jobs as the tracker does before it launches them."""

    def __init__(
        self,
        algorithms: Mapping[str, Algorithm],
        spool: FolderSpool,
        settings: DockerSettings,
        trees: TreeStore | None = None,
    ) -> None:
        super().__init__(spool, settings, trees=trees)
        self._algorithms = algorithms

    async def launch(self, job: Job) -> Observation:
        return await super().launch(resolved(job, self._algorithms, "docker", DockerPlugin(self._settings)))


class FakeGroups:
    """The world of the fake backend."""

    def __init__(self) -> None:
        self.world = FakeWorld()

    def open(self) -> FakeBackend:
        return FakeBackend(self.world)

    def spool(self) -> Spool:
        return self.world

    async def kept(self) -> set[str]:
        return {group.name for group in self.world.kept}

    async def end(self) -> None:
        self.world.close()


class ProcessGroups:
    """Processes in a folder. Algorithm "program" is support/program.py; `add` adds others."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.algorithms: dict[str, Algorithm] = {}
        self._opened: list[ProcessBackend] = []
        self._stores = {""}
        self.add("program", "python", str(PROGRAM))

    def add(self, name: str, *command: str, **recipe: Any) -> None:
        """Add an algorithm to the configuration."""
        self.algorithms[name] = algorithm_of(process={"command": command, **recipe})

    def open(
        self,
        *,
        store_id: str = "",
        most_log: int = MAX_LOG,
        trees: TreeStore | None = None,
        **settings: Any,
    ) -> ProcessBackend:
        self._stores.add(store_id)
        chosen = ProcessSettings(path=PATH, **{"inherit": (), **settings})
        backend = ResolvingProcesses(
            self.algorithms, self.root, chosen, store_id=store_id, most_log=most_log, trees=trees
        )
        self._opened.append(backend)
        return backend

    def spool(self, store_id: str = "") -> ProcessSpool:
        return ProcessSpool(self.root, store_id)

    async def kept(self) -> set[str]:
        folders = [folder for place in ("kept", "ended") for folder in self.root.glob(f"{place}/*/*/work")]
        return {folder.parent.parent.name for folder in folders}

    async def end(self) -> None:
        for backend in self._opened:
            await backend.close()
        for store_id in self._stores:
            last = ProcessBackend(self.root, ProcessSettings(path=PATH), store_id=store_id)
            for group in await groups_of(last):
                await last.stop(group, timedelta(0))
            await last.close()


class ResolvingToys(ToyBackend):
    """Resolves jobs as the tracker does before it launches them."""

    def __init__(self, world: ToyWorld) -> None:
        super().__init__(world, 0, nothing_more)

    async def launch(self, job: Job) -> Observation:
        program = InstanceSpec(command=("python", str(PROGRAM)), nproc_per_node=1)
        group = replace(job.spec.group, backend="toy", trainers=program)
        return await super().launch(replace(job, spec=replace(job.spec, group=group)))


class ToyGroups:
    """The world of a backend from another package."""

    def __init__(self) -> None:
        self.world = ToyWorld()

    def open(self) -> ToyBackend:
        return ResolvingToys(self.world)

    def spool(self) -> Spool:
        return self.world

    async def kept(self) -> set[str]:
        return {group.name for group in self.world.kept}

    async def end(self) -> None:
        backend = self.open()
        for group in await groups_of(backend):
            await backend.stop(group, timedelta(0))


class KubernetesGroups:
    """Pods in a namespace. Algorithm "program" is the image of support/program.py; `add` adds others."""

    def __init__(self, kubeconfig: Path, namespace: str, image: str, root: Path) -> None:
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self.root = root
        self.algorithms: dict[str, Algorithm] = {}
        self.tell: ExtraEnvironment = nothing_more
        self._image = image
        self._opened: list[KubernetesBackend] = []
        self.add("program")

    def add(self, name: str, *command: str, **recipe: Any) -> None:
        """Add an algorithm to the configuration."""
        # With a shared process namespace, the program is not process 1, which ignores signals without a
        # handler.
        template = {"spec": {"shareProcessNamespace": True}}
        values = {"image": self._image, "command": command, "pod_template": template, **recipe}
        self.algorithms[name] = algorithm_of(kubernetes=values)

    def open(
        self,
        *,
        lost_margin: float = 5.0,
        timing: WatchTiming | None = None,
        marks: GroupMarks | None = None,
        workload_seconds: float = 10.0,
        **settings: Any,
    ) -> KubernetesBackend:
        backend = ResolvingPods(
            self.algorithms,
            self.spool(),
            self._settings(settings),
            self.tell,
            lost_margin=lost_margin,
            timing=timing,
            marks=marks,
            workload_seconds=workload_seconds,
        )
        self._opened.append(backend)
        return backend

    def plan(self, job: Job, **settings: Any) -> KubernetesPlan:
        """Return the plan with which the job is launched if the backend has these settings."""
        chosen = self._settings(settings)
        wanted = resolved(job, self.algorithms, "kubernetes", KubernetesPlugin(chosen))
        return kubernetes_plan(wanted, chosen, self.tell(job))

    def spool(self) -> FolderSpool:
        return FolderSpool(self.root, MAX_LOG)

    async def kept(self, instance: str = "test") -> set[str]:
        """Return the names of the groups that the service `instance` has kept."""
        listing = await self.open().client.list("pods", selector(instance, kept=True))
        return {group.name for pod in listing.items if (group := group_of(pod))}

    async def end(self) -> None:
        """Close all backends. Deleting the namespace removes the groups."""
        for backend in self._opened:
            await backend.close()

    def _settings(self, changed: dict[str, Any]) -> KubernetesSettings:
        return KubernetesSettings(
            **{"kubeconfig": self.kubeconfig, "namespace": self.namespace, "instance": "test", **changed}
        )


class DockerGroups:
    """Containers on an engine. Algorithm "program" is the image of support/program.py; `add` adds others."""

    def __init__(self, engine: DockerEngine, image: str, root: Path) -> None:
        self.engine = engine
        self.root = root
        self.algorithms: dict[str, Algorithm] = {}
        self._image = image
        self._opened: list[DockerBackend] = []
        self.add("program")

    def add(self, name: str, *command: str, **recipe: Any) -> None:
        """Add an algorithm to the configuration."""
        self.algorithms[name] = algorithm_of(docker={"image": self._image, "command": command, **recipe})

    def open(self, *, trees: TreeStore | None = None, **settings: Any) -> DockerBackend:
        backend = ResolvingContainers(self.algorithms, self.spool(), self._settings(**settings), trees)
        self._opened.append(backend)
        return backend

    def plan(self, job: Job) -> DockerPlan:
        """Return the plan with which the job is launched if the backend has default settings."""
        settings = self._settings()
        wanted = resolved(job, self.algorithms, "docker", DockerPlugin(settings))
        return docker_plan(wanted, settings, most_log=MAX_LOG)

    def spool(self) -> FolderSpool:
        return FolderSpool(self.root, MAX_LOG)

    async def kept(self) -> set[str]:
        """Return the names of the groups that still have a container and the marker of an ending."""
        left = self.engine.left()
        marked = [name.removesuffix(ENDING) for name in left if name.endswith(ENDING)]
        return {group for group in marked if {f"{group}-master", f"{group}-1-worker"} & set(left)}

    async def end(self) -> None:
        for backend in self._opened:
            await backend.close()
        self.engine.clear()

    def _settings(self, **settings: Any) -> DockerSettings:
        return DockerSettings(base_url=self.engine.url, instance="test", extra_hosts={}, **settings)


async def groups_of(backend: Backend) -> dict[GroupRef, Observation]:
    """Return the observations of all existing groups, by group."""
    async with aclosing(backend.watch()) as watch:
        return await snapshot_of(watch)


async def started(backend: Backend, job: Job) -> Observation:
    """Launch the job, and return its group once every rank runs or has ended."""
    await backend.launch(job)

    def is_up(observation: Observation) -> bool:
        return all(rank.phase is not Phase.PENDING for rank in observation.statuses)

    return await seen(backend, job.group, is_up)


async def seen(backend: Backend, group: GroupRef, condition: Callable[[Observation], bool]) -> Observation:
    """Wait for an observation of the group that meets the condition, until the test's time-out."""
    async with aclosing(backend.watch()) as watch:
        async for change in watch:
            if change is not Mark.END_OF_SNAPSHOT and change[0] == group and condition(change[1]):
                return change[1]
    raise AssertionError("the watch ended")


async def text_of(pieces: AsyncIterator[bytes]) -> str:
    """Return the text of a whole log from its pieces."""
    return "".join([text async for text in texts_of(pieces)])


async def printed(backend: Backend, group: GroupRef, rank: int = 0, lines: int = 1) -> str:
    """Wait until the rank has printed this number of lines, and return the text.

    This shows that the rank runs.
    """
    pieces, text = backend.logs(group, rank, follow=True), ""
    try:
        while text.count("\n") < lines:
            text += records.text_of(await anext(pieces))
        return text
    finally:
        await pieces.aclose()

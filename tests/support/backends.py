"""Every kind of backend, opened as often as a test wants on a world of its own."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from job_tracker.backends.base import Backend, Observation
from job_tracker.backends.docker import Access as EngineAccess
from job_tracker.backends.docker import DockerBackend, DockerOptions
from job_tracker.backends.docker import PlanOptions as ContainerPlanOptions
from job_tracker.backends.docker.names import ENDING
from job_tracker.backends.docker.plan import DockerPlan
from job_tracker.backends.docker.plugin import DockerPlugin
from job_tracker.backends.docker.settings import DockerSettings
from job_tracker.backends.fake import FakeBackend, FakeWorld
from job_tracker.backends.kubernetes import Access, KubernetesBackend, KubernetesOptions, PlanOptions
from job_tracker.backends.kubernetes.labels import group_of, selector
from job_tracker.backends.kubernetes.plan import KubernetesPlan
from job_tracker.backends.kubernetes.plugin import KubernetesPlugin
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.backends.process import ProcessBackend, ProcessOptions
from job_tracker.backends.process.plan import ProcessPlan
from job_tracker.backends.process.plugin import ProcessPlugin
from job_tracker.backends.process.settings import ProcessSettings
from job_tracker.catalog import Algorithm
from job_tracker.domain.group import GroupRef, Phase
from job_tracker.domain.job import Job
from job_tracker.frameworks.job_environment import ExtraEnvironment, nothing_more
from job_tracker.logs import records
from tests.support.catalog import algorithm_of, resolved
from tests.support.docker_engine import DockerEngine
from tests.support.logs import texts_of

PROGRAM = Path(__file__).with_name("program.py")
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}"


class World(Protocol):
    """Where groups live, whatever becomes of the backends that look after them."""

    def open(self) -> Backend[Any]:
        """Another backend on this world, as after a restart of the service."""
        ...

    async def kept(self) -> set[str]:
        """The names of stopped groups of which there is more than their logs."""
        ...

    async def end(self) -> None:
        """Close what was opened, and end every group."""
        ...


class ResolvingProcesses(ProcessBackend):
    """Resolves jobs as the tracker does before it launches them."""

    def __init__(self, algorithms: Mapping[str, Algorithm], root: Path, options: ProcessOptions) -> None:
        super().__init__(root, options)
        self._algorithms = algorithms

    def plan(self, job: Job) -> ProcessPlan:
        """See Backend."""
        return super().plan(resolved(job, self._algorithms, "process", ProcessPlugin(ProcessSettings())))


class ResolvingPods(KubernetesBackend):
    """Likewise."""

    def __init__(
        self,
        algorithms: Mapping[str, Algorithm],
        root: Path,
        options: KubernetesOptions,
        tell: ExtraEnvironment,
    ) -> None:
        super().__init__(root, options, tell)
        self._algorithms = algorithms
        self._plugin = KubernetesPlugin(KubernetesSettings(pod=options.plan.pod))

    def plan(self, job: Job) -> KubernetesPlan:
        """See Backend."""
        return super().plan(resolved(job, self._algorithms, "kubernetes", self._plugin))


class ResolvingContainers(DockerBackend):
    """Likewise."""

    def __init__(self, algorithms: Mapping[str, Algorithm], root: Path, options: DockerOptions) -> None:
        super().__init__(root, options)
        self._algorithms = algorithms
        self._plugin = DockerPlugin(DockerSettings(container=options.plan.container))

    def plan(self, job: Job) -> DockerPlan:
        """See Backend."""
        return super().plan(resolved(job, self._algorithms, "docker", self._plugin))


class FakeGroups:
    """The world of the fake backend."""

    def __init__(self) -> None:
        self.world = FakeWorld()

    def open(self) -> FakeBackend:
        """See World."""
        return FakeBackend(self.world)

    async def kept(self) -> set[str]:
        """See World."""
        return {group.name for group in self.world.kept}

    async def end(self) -> None:
        """See World."""
        self.world.close()


class ProcessGroups:
    """Processes below a folder. Algorithm "program" is support/program.py; `add` adds others."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.algorithms: dict[str, Algorithm] = {}
        self._opened: list[ProcessBackend] = []
        self._stores = {""}
        self.add("program", "python", str(PROGRAM))

    def add(self, name: str, *command: str, **recipe: Any) -> None:
        """Make an algorithm known."""
        self.algorithms[name] = algorithm_of(process={"command": command, **recipe})

    def open(self, **options: Any) -> ProcessBackend:
        """See World."""
        self._stores.add(options.get("store_id", ""))
        backend = ResolvingProcesses(self.algorithms, self.root, ProcessOptions(**{"path": PATH, **options}))
        self._opened.append(backend)
        return backend

    async def kept(self) -> set[str]:
        """See World."""
        folders = [folder for place in ("kept", "ended") for folder in self.root.glob(f"{place}/*/*/work")]
        return {folder.parent.parent.name for folder in folders}

    async def end(self) -> None:
        """See World."""
        for backend in self._opened:
            await backend.close()
        for store_id in self._stores:
            options = ProcessOptions(path=PATH, store_id=store_id)
            last = ProcessBackend(self.root, options)
            for group in await last.observe():
                await last.stop(group, timedelta(0))
            await last.close()


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
        """Make an algorithm known."""
        # So that the program is not process 1, which a signal without a handler does not end.
        template = {"spec": {"shareProcessNamespace": True}}
        values = {"image": self._image, "command": command, "pod_template": template, **recipe}
        self.algorithms[name] = algorithm_of(kubernetes=values)

    def open(self, **options: Any) -> KubernetesBackend:
        """See World."""
        values = {
            "plan": PlanOptions(namespace=self.namespace, instance="test"),
            "access": Access(kubeconfig=self.kubeconfig),
            "lost_margin": 5.0,
            **options,
        }
        backend = ResolvingPods(self.algorithms, self.root, KubernetesOptions(**values), self.tell)
        self._opened.append(backend)
        return backend

    async def kept(self, instance: str = "test") -> set[str]:
        """See World. `instance` is the service that has kept them."""
        listing = await self.open().client.list("pods", selector(instance, kept=True))
        return {group.name for pod in listing.items if (group := group_of(pod))}

    async def end(self) -> None:
        """See World. What is left in the namespace goes with it."""
        for backend in self._opened:
            await backend.close()


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
        """Make an algorithm known."""
        self.algorithms[name] = algorithm_of(docker={"image": self._image, "command": command, **recipe})

    def open(self, plan: dict[str, Any] | None = None, **options: Any) -> DockerBackend:
        """See World. `plan` is what the plan's options are to be besides."""
        values = {
            "plan": ContainerPlanOptions(**{"instance": "test", **(plan or {})}),
            "access": EngineAccess(base_url=self.engine.url),
            **options,
        }
        backend = ResolvingContainers(self.algorithms, self.root, DockerOptions(**values))
        self._opened.append(backend)
        return backend

    async def kept(self) -> set[str]:
        """See World. What is kept is stopped containers, and the marker that says until when."""
        left = self.engine.left()
        marked = [name.removesuffix(ENDING) for name in left if name.endswith(ENDING)]
        return {group for group in marked if {f"{group}-master", f"{group}-1-worker"} & set(left)}

    async def end(self) -> None:
        """See World."""
        for backend in self._opened:
            await backend.close()
        self.engine.clear()


async def started(backend: Backend[Any], plan: Any) -> Observation:
    """The group of the plan, launched, once every rank runs or has ended."""
    await backend.launch(plan)

    def is_up(observation: Observation) -> bool:
        return all(rank.phase is not Phase.PENDING for rank in observation.statuses)

    return await seen(backend, plan.group, is_up)


async def seen(
    backend: Backend[Any], group: GroupRef, condition: Callable[[Observation], bool]
) -> Observation:
    """The first observation of the group that meets the condition; the test's time-out bounds it."""

    async def as_it_changes() -> Observation:
        async for changed, observation in backend.watch():
            if changed == group and condition(observation):
                return observation
        raise AssertionError("the watch ended")

    watching = asyncio.create_task(as_it_changes())
    await asyncio.sleep(0)  # it has subscribed, so nothing is missed between the look and the watch
    try:
        first = (await backend.observe()).get(group)
        return first if first is not None and condition(first) else await watching
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def text_of(pieces: AsyncIterator[bytes]) -> str:
    """All of a log."""
    return "".join([text async for text in texts_of(pieces)])


async def printed(backend: Backend[Any], group: GroupRef, rank: int = 0, lines: int = 1) -> str:
    """What the rank printed first, once there are so many lines of it: a sign that it really runs."""
    pieces, text = backend.logs(group, rank, follow=True), ""
    try:
        while text.count("\n") < lines:
            text += records.text_of(await anext(pieces))
        return text
    finally:
        await pieces.aclose()

"""The world of a service whose pods live in an API server in memory, and SQLite.

A run takes a second. So all calls of the Kubernetes backend can be tried, including the calls around an
eviction.
"""

import asyncio
import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from job_tracker.backends.shared.labels import ATTEMPT, JOB_ID
from tests.crash.scenario import CAPACITY, EVICTED, JOBS, RANK_PARAMETERS, RUN, PlannedJob, write_user_folder
from tests.crash.stored import problems_in_sqlite
from tests.support.fake_cluster import FakeCluster, Object, served
from tests.support.kueue import GROUP, Kueue
from tests.support.parameters import declared
from tests.support.patience import PATIENCE
from tests.support.pods import disrupted
from tests.support.ports import free_port

_NAMESPACE = "crash"
_START_SECONDS, _RUN_SECONDS, _SAVE_SECONDS = 0.01, 0.05, 0.1
_DRAINED = disrupted("EvictionByEvictionAPI", "Eviction API: evicting")


class Node(FakeCluster):
    """A cluster whose pods run as soon as they are created. Their behaviour is that of remote.py's rank."""

    def __init__(self, kubeconfig: Path) -> None:
        super().__init__(kubeconfig)
        self.ends_pods_at_once = False
        self.violations: list[str] = []
        self._starts: Counter[str] = Counter()
        self._noticed: dict[str, asyncio.Event] = {}
        """Set once the processes of a pod have received SIGTERM."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST" and request.query.get("dryRun"):
            return web.json_response(await request.json(), status=201)
        return await super().handle(request)

    def evict(self, name: str) -> None:
        """Evict a pod with the API, as a drain of its node does."""
        found = self._objects["pods", name]
        found["status"]["conditions"] = _DRAINED
        self.mark_deleted(name)

    def mark_deleted(self, name: str) -> None:
        """See FakeCluster."""
        super().mark_deleted(name)
        self._noticed[name].set()

    def delete(self, *names: str, kind: str = "pods") -> None:
        """See FakeCluster."""
        for name in names if kind == "pods" else ():
            if "running" in self._state_of(name):
                self.violations.append(f"{name} was ended without the time to save")
            if (notice := self._noticed.pop(name, None)) is not None:  # the pod may be deleted twice
                notice.set()
        super().delete(*names, kind=kind)

    def _post(self, kind: str, body: Object) -> web.Response:
        answer = super()._post(kind, body)
        if kind == "pods" and answer.status == 201:
            name, labels = body["metadata"]["name"], body["metadata"]["labels"]
            for other in self._pods_of(labels[JOB_ID]):
                if (another := self._labels_of(other)[ATTEMPT]) != labels[ATTEMPT]:
                    self.violations.append(f"{name} was created beside {other} of attempt {another}")
            self._noticed[name] = asyncio.Event()
            task = asyncio.get_running_loop().create_task(self._live(name))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return answer

    async def _live(self, name: str) -> None:
        """Run a pod from its start until it is gone or has ended by itself."""
        noticed = self._noticed[name]
        await asyncio.sleep(_START_SECONDS)
        while not (noticed.is_set() or self._may_start(name)):
            await asyncio.sleep(_START_SECONDS)
        if not noticed.is_set():
            self._starts[name] += 1
            self.run(name)
            does, first = self._environment(name, "DO"), self._environment(name, "JOB_ATTEMPT") == "1"
            if does == "hold" or (does == "hold once" and first):
                await noticed.wait()
            with suppress(TimeoutError):
                await asyncio.wait_for(noticed.wait(), _RUN_SECONDS)
            if not noticed.is_set():
                dies = does == "die once" and first
                self.end(name, 137 if dies else int(self._environment(name, "EXIT_CODE") or "0"))
                return
            await self._save(name)
        if ("pods", name) in self._objects:
            self.delete(name)

    async def _save(self, name: str) -> None:
        """Save with all others of the group, and end.

        As training code does, first wait for their notices, which come only when the service stops the group.
        """
        with suppress(TimeoutError):
            others = self._pods_of(self._labels_of(name)[JOB_ID])
            notices = (self._noticed[other].wait() for other in others if "running" in self._state_of(other))
            await asyncio.wait_for(asyncio.gather(*notices), PATIENCE)
        await asyncio.sleep(_SAVE_SECONDS)
        if "running" in self._state_of(name):
            self.end(name, 143)

    async def _log(self, name: str, *, follow: bool) -> web.Response:
        while follow and "running" in self._state_of(name):
            await asyncio.sleep(0.01)
        job, rank = self._environment(name, "JOB_ID"), self._environment(name, "RANK")
        at = "2026-11-21T12:00:00.00000000"
        progress = '::progress:: {"step": 1, "total_steps": 2}'
        return web.Response(text=f"{at}1Z rank {rank} of job {job}\n{at}2Z {progress}\n")

    def _may_start(self, name: str) -> bool:
        return not self._objects["pods", name]["spec"].get("schedulingGates")

    def _pods_of(self, job_id: str) -> list[str]:
        return [name for name in self.names() if self._labels_of(name).get(JOB_ID) == job_id]

    def _labels_of(self, name: str) -> dict[str, str]:
        return dict(self._objects["pods", name]["metadata"].get("labels", {}))

    def _environment(self, name: str, variable: str) -> str:
        if ("pods", name) not in self._objects:
            return ""
        (container,) = self._objects["pods", name]["spec"]["containers"]
        values = {each["name"]: each.get("value", "") for each in container["env"]}
        return str(values.get(variable, ""))

    def problems(self) -> Iterator[str]:
        """Yield violations and leftovers."""
        yield from self.violations
        yield from (f"{name} ran {count} times" for name, count in self._starts.items() if count > 1)
        for kind in ("pods", "services", "secrets", "workloads"):
            yield from (f"left behind: {kind} {name}" for name in self.names(kind))

    async def close(self) -> None:
        """End all pods."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class KueueNode(Node):
    """A Node with a stand-in for Kueue, which admits as many pods as the service otherwise does."""

    def __init__(self, kubeconfig: Path) -> None:
        super().__init__(kubeconfig)
        self.kueue = Kueue(self, default=CAPACITY)

    def run(self, *names: str) -> None:
        """See FakeCluster."""
        super().run(*names)
        running = [name for name in self.names() if "running" in self._state_of(name)]
        if len(running) > CAPACITY:
            self.violations.append(f"more pods run than Kueue admits: {running}")

    def evict(self, name: str) -> None:
        """Take back the admission of the pod's group."""
        self.kueue.evict(self._labels_of(name)[GROUP])


class Served:
    """A node that a thread serves until `close`."""

    def __init__(self, folder: Path, node: type[Node] = Node) -> None:
        self._folder, self._kind = folder, node
        self._loop = asyncio.new_event_loop()
        self._is_ready = threading.Event()
        self._ends = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._thread.start()
        assert self._is_ready.wait(PATIENCE)

    def ask(self, question: Callable[[Node], Any]) -> Any:
        """Call a function with the node, in its thread."""

        async def answer() -> Any:
            return question(self._node)

        return asyncio.run_coroutine_threadsafe(answer(), self._loop).result(PATIENCE)

    def close(self) -> None:
        """End the node."""
        self._loop.call_soon_threadsafe(self._ends.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        async with served(self._kind(self._folder / "kubeconfig")) as self._node:
            self._is_ready.set()
            await self._ends.wait()
            await self._node.close()


class ScriptedWorld:
    """Pods of an API server in memory, and SQLite. See World."""

    wraps: Sequence[str] = ("sqlite", "kubernetes")
    jobs: Sequence[PlannedJob] = (EVICTED, *JOBS)
    decides = True
    node: type[Node] = Node
    scheduling = f"""
            capacity = {CAPACITY}
            overtake_limit = 0
            """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._port = free_port()
        self._served: Served | None = None

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def make(self) -> None:
        """See World."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        version = self._data / "storage" / "versionedDatasets" / "1" / "v1"
        version.mkdir(parents=True)
        for name in ("examples.csv", "labels.csv"):
            (version / name).touch()
        self._served = Served(self.folder, self.node)
        write_user_folder(self.folder, {RUN: "#!/bin/sh\nexit 0\n"})
        (self.folder / "config.toml").write_text(
            f"""
            backend = "kubernetes"
            [storage]
            data_dir = {json.dumps(str(self._data))}
            [programs]
            enabled = true
            [reports]
            listen = "127.0.0.1:{self._port}"
            address = "127.0.0.1:{self._port}"
            [scheduling]
            {self.scheduling}
            [jobs]
            stop_grace = 5
            [retry]
            backoff = 0.05
            [kubernetes]
            kubeconfig = {json.dumps(str(self.folder / "kubeconfig"))}
            namespace = "{_NAMESPACE}"
            program_image = "program"
            [algorithms.witness]
            {declared(RANK_PARAMETERS)}
            [algorithms.witness.kubernetes]
            image = "witness"
            """
        )

    def evict(self, job_id: int) -> None:
        """See World."""
        assert self._served is not None
        self._served.ask(lambda node: node.evict(f"witness-{job_id}-1-worker"))

    def is_settled(self) -> bool:
        """See World."""
        return not any(file.is_file() for file in (self._data / "logs").rglob("*"))

    def problems(self) -> Iterator[str]:
        """See World."""
        assert self._served is not None
        yield from self._served.ask(lambda node: list(node.problems()))
        yield from problems_in_sqlite(self._data / "jobs.db")

    def close(self) -> None:
        """See World."""
        if self._served is not None:
            self._served.close()
            self._served = None


class KueueWorld(ScriptedWorld):
    """A ScriptedWorld in which Kueue decides which jobs run, and evicts pods. See World."""

    decides = False
    node = KueueNode
    scheduling = 'delegate = "kueue"'

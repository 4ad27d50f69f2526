"""Makes the pictures of docs/dashboard.md: real jobs of a real service, in a headless Chromium.

The picture of the page "service" shows two replicas on one Redis, if a Redis server is installed.

`python -m benchmarks.dashboard_pictures`, with these options:

- `--to FOLDER`: the folder for the pictures; docs/dashboard by default
- `--data FOLDER`: the service's folder, which is kept. A later run with this folder shows the same jobs
- `--all`: each view in light and dark, on a phone, a laptop and a 4K screen
- `--only TEXT`: only views whose names contain TEXT
"""

import argparse
import asyncio
import io
import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal

from PIL import Image
from playwright.async_api import Page, async_playwright

from benchmarks import stalling_rank
from benchmarks.redis_store import running
from benchmarks.support import (
    Server,
    clean_up_on_sigterm,
    make_dataset,
    request,
    script,
    service,
    serving,
    workspace,
)
from tests.support.redis_server import find_server
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub

Scheme = Literal["light", "dark"]

_CONFIG: Final = """
[projects.vision]
members = {{ ada = "admin", grace = "submitter" }}
[projects.speech]
members = {{ alan = "admin", "CN=barbara,O=Example" = "viewer" }}

[scheduling.flavors]
cpu = {{ instances = 8 }}
[scheduling.queues.research]
[scheduling.queues.vision]
parent = "research"
weight = 2
projects = ["vision"]
quotas.cpu = {{ nominal = {{ instances = 5 }} }}
[scheduling.queues.speech]
parent = "research"
projects = ["speech"]
quotas.cpu = {{ nominal = {{ instances = 3 }} }}

[algorithms.transcription]
description = "Trains in step, ring by ring"
process.command = {ring}
parameters = {{ FAULT = {{ default = "healthy" }}, RECORD = {{}} }}

[algorithms.translation]
process.command = {broken}
parameters = {{ HIDDEN = {{ type = "int", default = "512", minimum = 1 }} }}
"""
_BROKEN: Final = """
print("2 layers, 1.3 M parameters", flush=True)
def multiply(left, right):
    raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({left} and {right})")
def forward(batch):
    return multiply("64x512", "256x10")
forward(64)
"""
_SCREENS: Final = {"phone": (360, 780), "laptop": (1280, 800), "4k": (3840, 2160)}
_GIVE_UP_SECONDS: Final = 600.0
_NOTE_SECONDS: Final = 32.0
_ROOT: Final = Path(__file__).parents[1]


@dataclass(frozen=True)
class View:
    """A page. `shown` says whether its picture is in docs/dashboard.md."""

    name: str
    path: str
    shown: bool = True
    scheme: Scheme = "light"
    screen: str = "laptop"
    of_replicas: bool = False
    """Whether the page shows several replicas."""


class World:
    """The jobs that the pictures show."""

    def __init__(self, stub: TrainingServiceStub, folder: Path) -> None:
        self._stub = stub
        self._folder = folder
        self.jobs: dict[str, int] = {}

    def run(self) -> None:
        """Submit the jobs, and wait until each is in the state that the pictures show."""
        often = {"EPOCHS": "12", "CHECKPOINT_EVERY_STEPS": "60"}
        self._submit("questions", "vision", "intent-classification", often, instances=3, tags=["base"])
        self._seen("questions", pb.succeed)
        self._submit("broken", "speech", "translation", {"HIDDEN": "256"}, attempts=2)
        self._ring("stalled", "speech", "left-out:2:25", ranks=3, deadline=3)
        for number, (rate, width) in enumerate(_SWEEP):
            parameters = {"LR": rate, "FC_SIZE": width, "EPOCHS": "4"}
            self._submit(
                f"lr-sweep-{number}", "vision", "intent-classification", parameters, tags=["lr-sweep"]
            )
        for number in range(len(_SWEEP)):
            self._seen(f"lr-sweep-{number}", pb.succeed)
        self._seen("stalled", pb.failure)
        self._seen("broken", pb.failure)
        self._ring("corpus", "speech", "slow:1:10", ranks=3, expected=40 * 60, tags=["release"])
        # Wait until the slow rank of `corpus` is known. The wait also ensures that `corpus` has run longer
        # than `borrowed`. So the preemption of `corpus` would cost more, and `borrowed` is preempted.
        time.sleep(25)
        self._ring("borrowed", "speech", "", ranks=3, expected=25 * 60)
        self._seen("borrowed", pb.running)
        self._ring("fine-tuning", "vision", "", ranks=4, expected=15 * 60)
        self._seen("fine-tuning", pb.running)
        self._ring("ablation", "vision", "", ranks=3, expected=10 * 60)
        self._ring("nightly", "speech", "", ranks=2, expected=30 * 60)
        self._ring("whole-corpus", "speech", "", ranks=8, expected=60 * 60)
        time.sleep(35)  # until the leader has written the use of queues

    def _ring(self, name: str, project: str, fault: str, *, ranks: int, **more: Any) -> None:
        record = self._folder / "records" / name
        record.mkdir(parents=True)
        parameters = {"FAULT": fault or "slow:99:1", "RECORD": str(record)}
        self._submit(name, project, "transcription", parameters, instances=ranks, **more)

    def _submit(
        self,
        name: str,
        project: str,
        algorithm: str,
        parameters: dict[str, str],
        *,
        instances: int = 1,
        tags: Sequence[str] = (),
        attempts: int = 1,
        deadline: int = 0,
        expected: int = 0,
    ) -> None:
        request = pb.TrainRequest(
            metadata=pb.TrainingJobMetadata(
                algorithm=algorithm,
                dataset_id="1",
                name=name,
                train_data_version_hash="v1",
                output_model_name=name,
                parameters={**parameters, "PARALLEL_INSTANCES": str(instances)},
            ),
            tags=tags,
        )
        request.retry_policy.max_attempts = attempts
        if deadline:
            request.deadlines.progress.FromTimedelta(timedelta(seconds=deadline))
        if expected:
            request.expected.FromTimedelta(timedelta(seconds=expected))
        self.jobs[name] = self._stub.Train(request, metadata=(("x-project", project),)).job_id

    def _seen(self, name: str, wanted: pb.TrainingStatus.ValueType) -> None:
        watch = pb.WatchTrainingRequest(job_id=self.jobs[name])
        for status in self._stub.WatchTraining(watch, timeout=_GIVE_UP_SECONDS):
            if status.status == wanted:
                print(f"{name}: {pb.TrainingStatus.Name(wanted)}", file=sys.stderr)
                return
        raise RuntimeError(f"job {self.jobs[name]} ({name}) ended in another state: {status}")


_SWEEP: Final = (("0.5", "32"), ("2", "32"), ("8", "32"), ("0.5", "128"), ("2", "128"), ("8", "128"))


@contextmanager
def _service(folder: Path) -> Iterator[Server]:
    config = folder / "service.toml"
    ring = [sys.executable, str(Path(stalling_rank.__file__))]
    broken = [sys.executable, str(folder / "translate.py")]
    config.write_text(_CONFIG.format(ring=json.dumps(ring), broken=json.dumps(broken)))
    (folder / "translate.py").write_text(_BROKEN)
    arguments = ["--config", str(config), "--data-dir", str(folder), "--address", "127.0.0.1:0"]
    with serving([script("training-service"), "serve", *arguments, "--backend", "process"]) as server:
        yield server


@contextmanager
def _replicas(folder: Path) -> Iterator[Server]:
    """Run two replicas on one Redis, with some jobs.

    The block begins when each replica has written its second note about itself (tracking/replicas.py). The
    first note does not say yet how long the store takes to answer.
    """
    with running(folder) as redis, ExitStack() as stack:
        found = [
            stack.enter_context(service(folder, command=("true",), store__url=redis.url)) for _ in range(2)
        ]
        with found[1].stub() as stub:
            for _ in range(12):
                stub.Train(request())
        time.sleep(_NOTE_SECONDS)
        yield found[1]


def _views(jobs: dict[str, int]) -> list[View]:
    def job(name: str, part: str = "") -> str:
        return f"/jobs/{jobs[name]}{part}"

    swept = "&".join(f"job={jobs[f'lr-sweep-{number}']}" for number in range(len(_SWEEP)))
    return [
        View("jobs", "/jobs"),
        View("jobs-phone", "/jobs", scheme="dark", screen="phone"),
        View("job", job("corpus")),
        View("job-stalled", job("stalled")),
        View("job-broken", job("broken"), shown=False),
        View("job-preempted", job("borrowed"), shown=False),
        View("job-done", job("questions"), shown=False),
        View("curves", job("questions", "/curves")),
        View("logs", job("questions", "/logs?rank=all"), scheme="dark"),
        View("artifacts", job("questions", "/artifacts"), shown=False),
        View("compare", f"/compare?{swept}"),
        View("sweep", "/sweep?tag=lr-sweep"),
        View("queue", "/queue?over=hour"),
        View("machines", "/machines"),
        View("submit", "/submit?algorithm=intent-classification&project=vision"),
        View("operator", "/operator/service", of_replicas=find_server() is not None),
        View("projects", "/operator", shown=False),
        View("tokens", "/operator/tokens", shown=False),
        View("audit", "/operator/audit", shown=False),
        View("login", "/login", shown=False),
        View("not-found", "/jobs/100000", shown=False),
    ]


_RENAME: Final = """(names) => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text; text = texts.nextNode())
        for (const [from, to] of names) text.data = text.data.replaceAll(from, to);
}"""
"""JavaScript that replaces the paths of this machine in a page with the paths of a usual installation."""


async def _take(url: str, views: Sequence[View], to: Path, names: dict[str, str]) -> None:
    path = shutil.which("chromium")
    if path is None:
        raise SystemExit("chromium is not installed; on Debian: apt-get install chromium")
    async with async_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = await playwright.chromium.launch(executable_path=path, args=arguments)
        for view in views:
            width, height = _SCREENS[view.screen]
            page = await browser.new_page(
                base_url=url, viewport={"width": width, "height": height}, color_scheme=view.scheme
            )
            await page.goto(view.path)
            await _picture(page, to / f"{view.name}.webp", names)
            await page.close()
        await browser.close()


async def _picture(page: Page, to: Path, names: dict[str, str]) -> None:
    if await page.locator("#curves").count():
        await page.wait_for_selector("#curves[aria-busy=false]")
    await page.evaluate("document.fonts.ready")
    await page.evaluate(_RENAME, list(names.items()))
    taken = await page.screenshot(full_page=True)
    Image.open(io.BytesIO(taken)).convert("RGB").save(to, "WEBP", quality=82, method=6)


def _every(view: View) -> Iterator[View]:
    for screen in _SCREENS:
        for scheme in ("light", "dark"):
            yield replace(view, name=f"{view.name}-{screen}-{scheme}", scheme=scheme, screen=screen)


def _address_of(server: Server) -> str:
    return server.log.read_text().partition("dashboard at ")[2].partition("\n")[0]


def main() -> None:
    """Make the pictures."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--to", type=Path, default=Path("docs/dashboard"))
    asked.add_argument("--data", type=Path)
    asked.add_argument("--all", action="store_true")
    asked.add_argument("--only", default="")
    options = asked.parse_args()
    clean_up_on_sigterm()
    options.to.mkdir(parents=True, exist_ok=True)
    with workspace() as temporary:
        folder = options.data or temporary
        known = folder / "pictures.json"
        if not known.exists():
            make_dataset(folder, real=True)
        with _service(folder) as server, server.stub() as stub:
            if not known.exists():
                world = World(stub, folder)
                world.run()
                known.write_text(json.dumps(world.jobs))
            views = [view for view in _views(json.loads(known.read_text())) if options.only in view.name]
            if options.all:
                views = [each for view in views if view.screen == "laptop" for each in _every(view)]
            else:
                views = [view for view in views if view.shown]
            names = {str(folder): "/var/lib/training-service", str(_ROOT): "/opt/training-service"}
            alone = [view for view in views if not view.of_replicas]
            asyncio.run(_take(_address_of(server), alone, options.to, names))
        if several := [view for view in views if view.of_replicas]:
            with _replicas(temporary / "replicas") as server:
                names = {str(temporary / "replicas"): "/var/lib/training-service"}
                asyncio.run(_take(_address_of(server), several, options.to, names))


if __name__ == "__main__":
    main()

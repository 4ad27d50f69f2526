"""The dashboard of a running service, and browsers that visit it."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from job_tracker.access import tokens
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.group import Phase, RankStatus
from job_tracker.domain.job import Ending, JobState
from job_tracker.domain.pace import RankPace
from job_tracker.domain.progress import Progress
from job_tracker.domain.telemetry import Artifact, AttemptReport, MetricPoint
from job_tracker.store.sqlite import SqliteStore
from tests.support.api_service import Serve, Service
from tests.support.jobs import NOON, spec
from tests.support.patience import PATIENCE
from training_service import main
from training_service.web.routes import PAGES
from training_service.web_opening import Dashboard, open_dashboard

MARKUP = "<img src=x onerror=alert(1)>\"'&</script>"
ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
"""The types of content that browsers ask for when they load a page."""
STREAMS = ("/live", "/follow", "/fresh")
_PROOF = re.compile(r'name="proof" value="([0-9a-f]{64})"')


class Browser:
    """A client that keeps cookies, as a browser does."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = httpx.AsyncClient(base_url=url, timeout=PATIENCE, headers={"accept": ACCEPT})

    async def get(self, path: str, **headers: str) -> httpx.Response:
        """Load a page, without following redirects."""
        return await self.client.get(path, headers=headers)

    async def page(self, path: str, status: int = 200) -> str:
        """Load a page, and return its text."""
        answer = await self.get(path)
        assert answer.status_code == status, answer.text
        assert "Traceback" not in answer.text
        return answer.text

    async def post(self, path: str, fields: dict[str, Any], **headers: str) -> httpx.Response:
        """Send a form. If the fields have no proof, it gets the proof of this browser's session."""
        if "proof" not in fields:
            fields = {**fields, "proof": await self.proof()}
        return await self.client.post(path, data=fields, headers={"origin": self.url.rstrip("/"), **headers})

    async def proof(self) -> str:
        """Return the proof of this browser's session, from a form."""
        found = _PROOF.search(await self.page("/login"))
        assert found is not None
        return found[1]

    async def log_in(self, token: str) -> None:
        """Log in with a token."""
        answer = await self.post("/login", {"token": token, "next": "/jobs"})
        assert answer.status_code == 303, answer.text

    @asynccontextmanager
    async def events(self, path: str) -> AsyncIterator[AsyncIterator[tuple[str, str]]]:
        """Open a stream of events, and yield an iterator over the names and data of the events."""
        async with self.client.stream("GET", path, timeout=PATIENCE) as answer:
            assert answer.status_code == 200, await answer.aread()
            yield _events(answer.aiter_lines())


async def _events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, str]]:
    name, data = "", list[str]()
    async for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            data.append(line.removeprefix("data: "))
        elif not line and name:
            yield name, "\n".join(data)
            name, data = "", []


class Site:
    """A service with its dashboard."""

    def __init__(self, service: Service, dashboard: Dashboard, stack: AsyncExitStack) -> None:
        self.service = service
        self.dashboard = dashboard
        self._stack = stack

    def browser(self) -> Browser:
        """Return a new browser, without cookies."""
        made = Browser(self.dashboard.url)
        self._stack.push_async_callback(made.client.aclose)
        return made

    def operator_token(self) -> str:
        """Return the token of the operator of this machine."""
        made = tokens.new_token(tokens.OPERATOR_ID)
        self.service.access.callers.accept_operator(made.digest)
        return made.text


Visit = Callable[..., Awaitable[Site]]


@pytest.fixture
async def visit(serve: Serve) -> AsyncIterator[Visit]:
    """A function that starts a service with its dashboard."""
    async with AsyncExitStack() as stack:

        async def start(store: Any = SqliteStore, *, tracked: bool = False, **changes: Any) -> Site:
            service = await serve(store, tracked=tracked, **{"web": {"address": "127.0.0.1:0"}, **changes})
            metrics = service.metrics
            dashboard = open_dashboard(
                service.settings,
                service.store,
                await service.store.store_id(),
                service.jobs,
                service.access,
                service.declarations,
                service.keys,
                main.call_limits(service.settings),
                51001,
                None,
                metrics.observe_call,
                metrics.observe_refusal,
            )
            assert dashboard is not None
            await dashboard.start()
            stack.push_async_callback(dashboard.stop)
            return Site(service, dashboard, stack)

        yield start


def views(job_id: int = 1) -> list[str]:
    """Return the path of each page; for pages about jobs, with this job."""
    paths = {page.path for page in PAGES if not page.is_form}
    made = {path.replace("{job_id:int}", str(job_id)).replace("{name:path}", "model") for path in paths}
    chosen = {"/compare", "/series.csv", "/series.zip"}
    return sorted(f"{path}?job={job_id}" if path in chosen else path for path in made)


async def measured(site: Site, name: str, **metrics: list[float]) -> int:
    """Submit a job, and report its metrics."""
    job_id = await site.service.train(name=name)
    store = site.service.store
    await store.update((await store.get(job_id)).admitted(NOON))
    points = tuple(
        MetricPoint(metric, step, NOON, value)
        for metric, values in metrics.items()
        for step, value in enumerate(values)
    )
    assert await store.record_reports([AttemptReport(job_id=job_id, attempt=1, at=NOON, points=points)]) == [
        True
    ]
    return job_id


async def hostile_job(site: Site) -> int:
    """Store a job all of whose texts are markup, and return its id."""
    store = site.service.store
    text = MARKUP
    submitted = spec({text: text}, name=text, submitted_by=text, code_version=text, model_name=text)
    job = await store.submit(submitted, NOON, None, 9, tags=("<b>",))
    diagnosis = Diagnosis(
        category=Category.CRASHED, summary=text, resolution=text, detail=text, rank=0, cause=text
    )
    job = await store.update(job.admitted(NOON))
    job = await store.update(job.observed((RankStatus(0, Phase.FAILED, 1, note=text),), text).running(NOON))
    report = AttemptReport(
        job_id=job.id,
        attempt=1,
        at=NOON,
        progress=Progress(step=1, metrics={text: 1.0}, ranks=(RankPace(0, slowness=2.0, stack=text),)),
        points=(MetricPoint(text, 1, NOON, 1.0),),
        artifacts=(Artifact(name=text, uri=text, kind=text, sha256=text),),
    )
    assert await store.record_reports([report]) == [True]
    job = await store.get(job.id)
    job = await store.update(job.ended(Ending(JobState.FAILED, NOON, diagnosis), NOON))
    await store.annotate(job, job.tags, text)
    return job.id

"""The dashboard, with 100,000 jobs in the store, in a headless Chromium and for 50 viewers.

The service runs with the fake backend: 200 jobs run, 2,000 wait, the others have ended. One job has a log
of 1 GB, one has 10,000 ranks, and one has 256 metrics.

- In the browser: bytes and time of the first page, and the times until the browser shows an event, 20 curves,
  and the end of the log.
- Over HTTP, one request after the other: the time of each view, and memory over 10,000 page views.
- Without and with 50 viewers, while jobs are submitted and cancelled: CPU, memory, and the rate of
  GetTrainingStatus. The viewers are in another process, and each keeps the stream of a page open.
"""

import http.client
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import psutil

from benchmarks import dashboard_browser as browsers
from benchmarks.dashboard_store import LINES_OF_SECOND, RUNNING, Filled, fill
from benchmarks.support import (
    Client,
    Row,
    Server,
    interleaved,
    ratio,
    request,
    run_alone,
    service,
    workspace,
)
from benchmarks.viewers import Viewers
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub

_VIEWERS = 50
_EVENTS_OF_SECOND = 4
_START_SECONDS = 120.0
_WARM_UP = 2000
"""The number of page views after which caches are full."""
_VIEW_MS, _MEMORY_MB, _CORE, _RATE, _GROWTH_MB = 100.0, 30.0, 0.10, 0.9, 5.0
_OPEN = {f"limits__{kind}_rate": "0" for kind in ("submit", "change", "read", "list", "stream")}


def measure(quick: bool) -> list[Row]:
    filled = Filled(10_000, 100_000_000) if quick else Filled(100_000, 1_000_000_000)
    rounds = 3 if quick else 7
    with workspace() as folder:
        fill(folder, filled)
        with (
            service(folder, capacity=RUNNING, **_OPEN) as server,
            server.stub() as stub,
            browsers.chromium() as browser,
        ):
            _until_all_run(stub)
            url = _url(server)
            rows = _each_view(server, url, filled, 10 if quick else 40)
            if browser is None:
                rows += browsers.absent(
                    ["first page", "an event on the screen", "curves", "the end of a log"]
                )
            else:
                rows += browsers.first_page(browser, url, rounds)
                rows.append(browsers.curves(browser, url, filled, rounds))
                last = f"line {LINES_OF_SECOND - 1:06}"
                rows.append(browsers.log_end(browser, url, filled.logged, last, filled.log_bytes, rounds))
                with closing(Viewers(url, _watched(filled))):
                    rows.append(browsers.events(browser, url, stub, 5 if quick else 20))
            rows += _viewers(server, stub, url, filled, 6.0 if quick else 20.0)
            rows.append(_status(server, stub, url, filled, *((1.0, 5) if quick else (2.0, 11))))
            rows.append(_growth(server, url, filled, 1_000 if quick else 10_000))
    return rows


def _url(server: Server) -> str:
    return server.log.read_text().partition("dashboard at ")[2].partition("\n")[0]


def _until_all_run(stub: TrainingServiceStub) -> None:
    deadline = time.monotonic() + _START_SECONDS
    wanted = pb.ListTrainingJobsRequest(statuses=[pb.running], page_size=RUNNING)
    while len(stub.ListTrainingJobs(wanted).jobs) < RUNNING:
        if time.monotonic() > deadline:
            raise TimeoutError("the jobs do not run")
        time.sleep(0.1)


# --- views ---------------------------------------------------------------------------------------


def _views(filled: Filled) -> list[str]:
    running, ended = filled.running[0], filled.large - 1
    compared = "&".join(f"job={job_id}" for job_id in range(ended - 20, ended))
    return [
        "/jobs",
        "/jobs?size=200",
        "/jobs?state=failed",
        "/jobs?state=running",
        "/jobs?name=training-7",
        "/jobs?algorithm=language-model&project=vision",
        "/jobs?tag=sweep-5",
        "/jobs?by=person-3",
        "/jobs?since=2020-01-01&until=2100-01-01&project=speech",
        f"/jobs?before={filled.jobs // 2}",
        f"/jobs/{running}",
        f"/jobs/{filled.jobs}",
        f"/jobs/{ended}",
        f"/jobs/{filled.large}",
        f"/jobs/{filled.measured}/curves",
        f"/jobs/{filled.measured}/series",
        f"/jobs/{filled.noisy}/series",
        f"/jobs/{running}/logs",
        f"/jobs/{filled.logged}/logs?lines=100",
        f"/jobs/{ended}/artifacts",
        f"/compare?{compared}",
        "/queue",
        "/queue?over=week",
        "/sweep?tag=sweep-5",
        "/sweep?state=succeeded",
        "/machines",
        "/submit?algorithm=bench",
        "/operator",
        "/operator/service",
        "/operator/tokens",
        "/operator/audit",
    ]


def _load(connection: http.client.HTTPConnection, path: str) -> float:
    """Load a page without its scripts and styles, and return the seconds that it took."""
    began = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    if answer.status != http.client.OK:
        raise RuntimeError(f"{path}: {answer.status}")
    return time.perf_counter() - began


@contextmanager
def _connected(url: str) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    with closing(connection):
        yield connection


def _each_view(server: Server, url: str, filled: Filled, times: int) -> list[Row]:
    """Load each view several times.

    Return two rows, which name the slowest views by the 95th percentile of time, and by CPU time.
    """
    process = psutil.Process(server.pid)
    found: dict[str, list[float]] = {}
    busy: dict[str, float] = {}
    with _connected(url) as connection:
        for view in _views(filled) * 2:
            _load(connection, view)  # warms up: the first request for the queue copies the queue into memory
        for view in _views(filled):
            before = sum(process.cpu_times()[:2])
            found[view] = [1000 * _load(connection, view) for _ in range(times)]
            busy[view] = 1000 * (sum(process.cpu_times()[:2]) - before) / times
    late = {view: statistics.quantiles(taken, n=20)[-1] for view, taken in found.items()}
    median = statistics.median(each for taken in found.values() for each in taken)
    return [
        Row(
            f"dashboard: answer of the service, P95 of the slowest of {len(found)} views (median of all)",
            f"{_slowest(late)} ({median:.0f} ms)",
            target="≤ 100 ms",
            met=max(late.values()) <= _VIEW_MS,
        ),
        Row("dashboard: … CPU of the service, the most", _slowest(busy)),
    ]


def _slowest(found: dict[str, float]) -> str:
    slowest = sorted(found, key=lambda view: found[view], reverse=True)[:4]
    return ", ".join(f"{found[view]:.0f} ms {view[:30]}" for view in slowest)


def _growth(server: Server, url: str, filled: Filled, number: int) -> Row:
    """Load pages to warm up and then `number` pages. Return a row that compares the memory before these
    pages, after half of them, and after all of them.
    """
    views = _views(filled)
    marks = []
    with _connected(url) as connection:
        for half in (_WARM_UP, number // 2, number // 2):
            for turn in range(half):
                _load(connection, views[turn % len(views)])
            marks.append(_memory(server))
    before, middle, after = marks
    return Row(
        f"dashboard: memory of {before:.0f} MB after {number:,} page views more (after half of them)",
        f"{after - before:+.1f} MB ({middle - before:+.1f} MB)",
        target="no growth (≤ 5 MB)",
        met=after - before <= _GROWTH_MB,
    )


# --- viewers -------------------------------------------------------------------------------------


def _watched(filled: Filled) -> list[str]:
    """Return the paths of the streams, one for each viewer. Most viewers look at the list of jobs."""
    running = filled.running
    return [
        *["/jobs/live"] * 25,
        *["/jobs/live?state=running"] * 5,
        *[f"/jobs/{running[0]}/live"] * 5,
        *[f"/jobs/{job_id}/live" for job_id in running[1:6]],
        *["/queue/live"] * 5,
        *[f"/jobs/{running[0]}/logs/follow?rank=0"] * 3,
        *[f"/jobs/{running[0]}/fresh"] * 2,
    ]


@contextmanager
def _changes(stub: TrainingServiceStub) -> Iterator[None]:
    """During the block, submit and cancel jobs."""
    over = threading.Event()

    def change() -> None:
        while not over.wait(2 / _EVENTS_OF_SECOND):
            job_id = stub.Train(request()).job_id
            stub.CancelTraining(pb.CancelTrainingRequest(job_id=job_id))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _viewers(
    server: Server, stub: TrainingServiceStub, url: str, filled: Filled, seconds: float
) -> list[Row]:
    """Return rows with the CPU and memory that viewers add. Both are measured without viewers first."""
    process = psutil.Process(server.pid)

    def used() -> tuple[float, float]:
        before = process.cpu_times()
        time.sleep(seconds)
        after = process.cpu_times()
        return (after.user + after.system - before.user - before.system) / seconds, _memory(server)

    with _changes(stub):
        alone, alone_memory = used()
        with closing(Viewers(url, _watched(filled))) as viewers:
            time.sleep(1)
            begun = viewers.events()
            watched, memory = used()
            rate = (viewers.events() - begun) / seconds
    more, growth = watched - alone, memory - alone_memory
    return [
        Row(
            f"dashboard: CPU for {_VIEWERS} viewers who get {rate:.0f} events/s",
            f"{more:.1%} of a core",
            f"{alone:.1%} without",
            target="≤ 10 %",
            met=more <= _CORE,
        ),
        Row(
            f"dashboard: memory for {_VIEWERS} viewers",
            f"{growth:+.1f} MB",
            target="≤ 30 MB",
            met=growth <= _MEMORY_MB,
        ),
    ]


def _status(
    server: Server, stub: TrainingServiceStub, url: str, filled: Filled, seconds: float, rounds: int
) -> Row:
    ids = list(filled.running)
    with closing(Client()) as client, _changes(stub):

        def rate() -> float:
            return client.calls_per_second(server, "GetTrainingStatus", seconds=seconds, job_ids=ids)

        def watched_rate() -> float:
            with closing(Viewers(url, _watched(filled))):
                return rate()

        without, watched = interleaved(rounds, rate, watched_rate)
    against = ratio(watched, without)
    return Row(
        f"dashboard: GetTrainingStatus with {_VIEWERS} viewers, calls/s against none",
        f"{statistics.median(watched):,.0f}/s",
        f"{statistics.median(without):,.0f}/s",
        f"{against:.2f}",
        "≥ 0.9",
        against >= _RATE,
    )


def _memory(server: Server) -> float:
    """Return the resident set of the service in MB."""
    return float(psutil.Process(server.pid).memory_info().rss) / 1e6


if __name__ == "__main__":
    run_alone(measure)

"""Rules for every test: it leaves nothing behind that it has started."""

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

# Here, so that all tests share them.
pytest_plugins = ["tests.support.skipped_time", "tests.support.trainers.fork_fixtures"]

_ORDER = {"crash": 0, "e2e/frameworks": 2, "e2e": 1, "unit/trainer_images": 3}
"""The order of the folders with the longest tests, which run before all other tests with --longest-first."""

_MARKERS = {"cluster": "cluster", "docker_engine": "engine"}
"""Fixtures of tests.support, and the marker of tests that use them."""
_TESTS = Path(__file__).parent
_ENGINES = tuple(
    _TESTS / place
    for place in ("contract/backends", "crash", "e2e", "integration/docker", "integration/kubernetes")
)
"""The folders of the tests with these markers. Importing all other tests would take longer than some of these
tests.
"""

_ENDING_SECONDS = 60.0
"""The longest time for processes and threads that are just ending at the end of a test, on a busy machine."""

_OF_A_LOOP, _GRPC = "asyncio_", "_poll_wrapper"
"""The names of threads that end with their event loop, and of the thread of gRPC's async calls, which lives
as long as any of their channels and servers.
"""

_MEMORY, _ROOM = Path("/dev/shm"), 6 << 30
"""A folder in memory for the files of tests, and the free bytes that it must have to be used.

With files on a disk, tests of stores would mostly wait for the disk, because SQLite syncs each commit. In
both places, a killed service keeps all that it has written.
"""

# Failed assertions of helpers get the same detailed messages as those of tests.
pytest.register_assert_rewrite("tests.support")

# A slow example is a sign of a busy machine, and not of a defect.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

# Tests share the cores. Two threads of PyTorch that wait for each other spin, which takes four times the CPU.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell that starts this process with & makes it ignore SIGINT, and our children would inherit this.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--longest-first",
        action="store_true",
        help="run the folders with the longest tests first, for processes that share all tests",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Linux divides the cores evenly among busy sessions (sched_autogroup), and each rank and daemon has its
    # own. If the processes of pytest-xdist shared one, tests in them would starve beside real trainings.
    if hasattr(config, "workerinput"):
        os.setsid()
    # Files that containers and pods mount stay where an engine finds them.
    if config.option.markexpr not in _MARKERS.values() and _has_room(_MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the other folders if only tests with a cluster or with a Docker engine are wanted."""
    if config.option.markexpr not in _MARKERS.values() or not collection_path.is_relative_to(_TESTS):
        return None
    near = (*_ENGINES, *(parent for place in _ENGINES for parent in place.parents))
    has_some = collection_path in near or any(map(collection_path.is_relative_to, _ENGINES))
    return None if has_some else True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the objects of the collection, almost all of which stay, out of garbage collections.

    To go through them again and again would take almost half of the time of the collection.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need a cluster or a Docker engine. With --longest-first, sort the tests."""
    for item in items:
        for fixture, marker in _MARKERS.items():
            if _is_shared(item, fixture):
                assert any(map(item.path.is_relative_to, _ENGINES)), f"{item.nodeid} would not be run"
                item.add_marker(marker)
    if config.option.longest_first:
        items.sort(key=_place)


@pytest.fixture(autouse=True)
def no_process_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail if a process outlives the test that descends from us, or whose HOME is below the tests' folder."""
    folder = f"{tmp_path_factory.getbasetemp()}/"
    before = _pids()
    yield
    left = [process for pid in _pids() - before if (process := _ours(pid, folder))]
    _, alive = psutil.wait_procs(left, timeout=_ENDING_SECONDS)
    for process in alive:
        process.kill()
    psutil.wait_procs(alive)
    assert not alive, f"processes left behind: {alive}"


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Fail if a thread outlives the test: it would run into the tests after it."""
    before = set(threading.enumerate())
    yield
    ends = time.monotonic() + _ENDING_SECONDS
    left = [thread for thread in threading.enumerate() if thread not in before]
    left = [thread for thread in left if not thread.name.startswith(_OF_A_LOOP) and _GRPC not in thread.name]
    for thread in left:
        thread.join(max(0, ends - time.monotonic()))
    alive = [thread for thread in left if thread.is_alive()]
    assert not alive, f"threads left behind: {alive}"


@pytest.fixture(autouse=True)
async def no_task_is_left() -> AsyncIterator[None]:
    """Fail if a task outlives the test."""
    before = asyncio.all_tasks()
    yield
    left = {task for task in asyncio.all_tasks() - before if not task.done()}
    left.discard(asyncio.current_task())
    if left:  # gRPC's tasks of answered calls may be just ending
        _, left = await asyncio.wait(left, timeout=_ENDING_SECONDS)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    assert not left, f"tasks left behind: {left}"


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """A storage root with version "v1" of dataset "1" in it."""
    version = tmp_path / "storage" / "versionedDatasets" / "1" / "v1"
    version.mkdir(parents=True)
    for name in ("examples.csv", "labels.csv"):
        (version / name).write_text("")
    return tmp_path / "storage"


def _is_shared(item: pytest.Item, fixture: str) -> bool:
    """Return whether the test uses this fixture of tests.support, and not another fixture with this name."""
    if fixture not in getattr(item, "fixturenames", ()):
        return False
    found = item._request._fixturemanager.getfixturedefs(fixture, item)  # type: ignore[attr-defined]
    return bool(found) and found[-1].func.__module__.startswith("tests.support.")


def _has_room(folder: Path) -> bool:
    """Return whether this folder has room for the files of the tests, and allows programs in it to run."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return False
    free = min(status.f_bavail * status.f_frsize, psutil.virtual_memory().available)
    return free >= _ROOM and not status.f_flag & os.ST_NOEXEC and os.access(folder, os.W_OK)


def _place(item: pytest.Item) -> int:
    """Return the item's place in the order of the folders with the longest tests."""
    path = item.path.relative_to(_TESTS)
    return next((place for folder, place in _ORDER.items() if path.is_relative_to(folder)), len(_ORDER))


def _pids() -> set[int]:
    """Return the pids of all processes of this machine. Must be quick: it is called before and after each
    test.
    """
    return set(psutil.pids())


def _ours(pid: int, folder: str) -> psutil.Process | None:
    """Return the process if it descends from us, or if its HOME is below the folder."""
    try:
        process = psutil.Process(pid)
        if any(parent.pid == os.getpid() for parent in process.parents()):
            return process
        if f"HOME={folder}".encode() in Path(f"/proc/{pid}/environ").read_bytes():
            return process
    except (OSError, psutil.Error):  # the process has ended
        pass
    return None

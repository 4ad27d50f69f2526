"""Jobs attack the service by the files that they can write, through the API and on default settings.

Each attack is the program of an algorithm. All use one service.
"""

import functools
import gzip
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.patience import PATIENCE
from tests.support.server import Server
from training_service._generated import training_service_pb2 as pb
from training_service.client import InvalidRequest, NotFound, TrainingClient, TrainingServiceError

MB = 10**6
SECRET = "the secret of another folder"
_BEGIN = """
import gzip, os, sys, time
from pathlib import Path
model = Path(os.environ["MODEL_URI"])
storage = next(each for each in model.parents if each.name == "models").parent
stored_log = storage / "logs" / model.parent.name / model.name
elsewhere = storage.parent / "elsewhere"
"""
ATTACKS = {
    "link-to-the-root": """
model.mkdir(parents=True)
(model / "model.pt").write_text("a model")
(model / "r").symlink_to("/")
(model / "secret").symlink_to(elsewhere / "secret")
""",
    "model-is-a-link": """
model.parent.mkdir(parents=True, exist_ok=True)
model.symlink_to(elsewhere)
""",
    "parent-of-models-is-a-link": """
others = storage.parent / "others"
(others / model.name).mkdir(parents=True)
(others / model.name / "secret").write_text((elsewhere / "secret").read_text())
model.parent.parent.mkdir(parents=True, exist_ok=True)
model.parent.unlink(missing_ok=True)
model.parent.symlink_to(others)
""",
    "fifo": """
model.mkdir(parents=True)
os.mkfifo(model / "fifo")
""",
    "many-files": """
model.mkdir(parents=True)
os.chdir(model)
for number in range(15_000):
    os.mknod(str(number))
""",
    "log-is-a-link": """
stored_log.parent.mkdir(parents=True, exist_ok=True)
stored_log.symlink_to(elsewhere)
print("a line")
""",
    "process-record": """
Path("../process.json").write_text("[" * 200_000)
print("overwritten", flush=True)
time.sleep(1e6)
""",
    "honest": """
print("a line", flush=True)
""",
}


class Attacked(Server):
    """A service on default settings, with these algorithms."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        version = folder / "storage" / "versionedDatasets" / "1" / "v1"
        version.mkdir(parents=True)
        for file in ("examples.csv", "labels.csv"):
            (version / file).touch()
        config = []
        for name, program in ATTACKS.items():
            script = folder / f"{name}.py"
            script.write_text(_BEGIN + program)
            config.append(f'[algorithms.{name}.process]\ncommand = ["python", "{script}"]\n')
        (folder / "config.toml").write_text("\n".join(config))
        (folder / "elsewhere").mkdir()
        (folder / "elsewhere" / "secret").write_text(SECRET)

    @property
    def itself(self) -> psutil.Process:
        """The process of the service."""
        assert self.process is not None
        return psutil.Process(self.process.pid)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    made = Attacked(tmp_path_factory.mktemp("attacked"))
    made.start().close()
    yield made
    assert made.end(signal.SIGTERM) == 0


@pytest.fixture
def client(attacked: Attacked) -> Iterator[TrainingClient]:
    with TrainingClient(attacked.address) as made:
        yield made


Run = Callable[[str], int]


@pytest.fixture
def run(client: TrainingClient) -> Run:
    """Runs a job with one of the programs to its end, and returns its id."""
    return functools.partial(ran, client)


def ran(client: TrainingClient, algorithm: str) -> int:
    job = client.submit(algorithm, "1", "v1")
    status = client.wait(job, timeout=PATIENCE)
    assert status.status == pb.succeed, status.message
    return job


def names(client: TrainingClient, job: int) -> list[str]:
    return [each.name for each in client.artifacts(job).artifacts]


def printed(client: TrainingClient, job: int) -> str:
    return "".join(piece.text for piece in client.logs(job))


@pytest.mark.parametrize(
    "name",
    [
        *("r", "r/", "r/proc/self/environ", "r/etc/passwd", "r/../model.pt", "secret", "./secret"),
        *("../secret", "../../elsewhere/secret", "/proc/self/environ", "model.pt/../secret"),
    ],
)
def test_a_link_in_the_folder_of_a_model_is_not_followed(
    client: TrainingClient, run: Run, attacked: Attacked, name: str
) -> None:
    job = next((each.job_id for each in client.list() if each.metadata.algorithm == "link-to-the-root"), 0)
    job = job or run("link-to-the-root")
    assert names(client, job) == ["model.pt"]
    assert b"".join(client.fetch(job, "model.pt")) == b"a model"
    with pytest.raises((NotFound, InvalidRequest)) as refused:
        b"".join(client.fetch(job, name))
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("attack", ["model-is-a-link", "parent-of-models-is-a-link"])
def test_a_link_in_place_of_a_models_folder_shows_no_other_folder(
    client: TrainingClient, run: Run, attack: str
) -> None:
    job = run(attack)
    with suppress(TrainingServiceError):  # the answer may say that the folder cannot be read
        assert names(client, job) == []
    with pytest.raises(TrainingServiceError) as refused:
        b"".join(client.fetch(job, "secret"))
    assert SECRET not in str(refused.value)


def test_reading_pipes_leaves_no_thread_behind(client: TrainingClient, run: Run, attacked: Attacked) -> None:
    job = run("fifo")
    assert names(client, job) == []

    def read(_: int) -> None:
        with pytest.raises(NotFound):
            b"".join(client.fetch(job, "fifo"))

    before = attacked.itself.num_threads()
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(read, range(100)))
    assert attacked.itself.num_threads() < before + 50, "a thread for each read would be 100"


def test_a_model_of_many_files_is_listed_in_part_and_at_once(
    client: TrainingClient, run: Run, attacked: Attacked
) -> None:
    """The service looks at 2,560 of the files, so more files than these 15,000 take no more time."""
    job = run("many-files")
    list(client.list())
    memory, used = attacked.itself.memory_info().rss, sum(attacked.itself.cpu_times()[:2])
    for _ in range(5):
        assert len(names(client, job)) == 256
    assert sum(attacked.itself.cpu_times()[:2]) - used < 5, "seconds of CPU time"
    assert attacked.itself.memory_info().rss - memory < 30 * MB


def test_no_log_is_written_through_a_link(client: TrainingClient, run: Run, attacked: Attacked) -> None:
    run("log-is-a-link")
    run("honest")
    assert [each.name for each in (attacked.folder / "elsewhere").rglob("*")] == ["secret"]


def test_a_stored_log_without_a_line_break_uses_neither_time_nor_memory(
    client: TrainingClient, run: Run, attacked: Attacked
) -> None:
    """A later job of the same project can write such a log. It has 130 kB, and 130 MB unpacked."""
    job = run("honest")
    [stored] = (attacked.folder / "storage" / "logs").glob(f"*/*-{job}/**/*.log.gz")
    stored.write_bytes(gzip.compress(bytes(130 * MB), 9))
    assert stored.stat().st_size < 200_000
    memory, used = attacked.itself.memory_info().rss, sum(attacked.itself.cpu_times()[:2])
    assert len(printed(client, job)) < 1 * MB
    assert sum(attacked.itself.cpu_times()[:2]) - used < 10, "seconds of CPU time"
    assert attacked.itself.memory_info().rss - memory < 40 * MB


def test_a_forged_record_stops_only_its_own_job(tmp_path: Path) -> None:
    service = Attacked(tmp_path)
    with service.start() as client:
        job = client.submit("process-record", "1", "v1")
        assert "overwritten" in next(iter(client.logs(job, follow=True))).text
        ran(client, "honest")
    service.end(signal.SIGKILL)
    with service.start() as client:
        ran(client, "honest")
        client.cancel(job)
        assert client.wait(job, timeout=PATIENCE).status in (pb.cancelled, pb.failure)
    assert service.end(signal.SIGTERM) == 0
    assert "Traceback" not in service.log.read_text()

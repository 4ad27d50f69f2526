"""Shared parts of the benchmarks: a service, a server with empty handlers, load, filled stores, the table."""

import asyncio
import functools
import json
import os
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import grpc
import psutil

from benchmarks.filled import write_jobs
from job_tracker.domain.group import GroupSpec, InstanceSpec, Phase, RankStatus
from job_tracker.domain.job import Ending, Job, JobState, new_job
from job_tracker.domain.job_spec import JobSpec
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub

Measured = TypeVar("Measured")

IN_FLIGHT = 64
ALGORITHM = "bench"
PARAMETERS = (
    "LR",
    "EPOCHS",
    "BATCH_SIZE",
    "FC_SIZE",
    "RUN_SECONDS",
    "SECONDS_TO_RUN",
    "RECORD",
    "SIZE",
    "FAULT",
)
"""The names of the parameters that a request may have. They are declared without a type."""
DECLARED = f"parameters = {{ {', '.join(f'{name} = {{}}' for name in PARAMETERS)} }}"
"""The TOML line that declares these parameters for the algorithm."""
# While all tests run on the machine, too, 1 s of CPU takes up to 50 s.
_START_SECONDS = 240.0
_STOP_SECONDS = 240.0
_SEED_IN_FLIGHT = 256


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `met` is None where there is no target."""

    name: str
    measured: str
    peer: str = ""
    ratio: str = ""
    target: str = ""
    met: bool | None = None


def print_table(rows: Sequence[Row]) -> None:
    """Print the table as Markdown."""
    words = {True: "yes", False: "**no**", None: ""}
    lines = [("name", "measured", "peer", "ratio", "target", "met?")]
    lines += [(row.name, row.measured, row.peer, row.ratio, row.target, words[row.met]) for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    lines.insert(1, tuple("-" * width for width in widths))  # type: ignore[arg-type]
    for line in lines:
        print("| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |")


def run_alone(measure: Callable[[bool], list[Row]]) -> None:
    """Run one benchmark and print its table: `python -m benchmarks.NAME [--quick]`.

    With `--help`, only print the docstring of its module.
    """
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(sys.modules["__main__"].__doc__)
        return
    clean_up_on_sigterm()
    print_table(measure("--quick" in sys.argv[1:]))


def clean_up_on_sigterm() -> None:
    """Make SIGTERM, which `timeout` sends, raise SystemExit, so that this program ends its servers and groups
    before it ends.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


@contextmanager
def workspace() -> Iterator[Path]:
    """Make a folder for all files of a benchmark. At the end of the block, kill the processes that still run
    in the folder, and remove the folder.
    """
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        try:
            yield Path(folder)
        finally:
            for process in processes_in(folder):
                with suppress(psutil.NoSuchProcess):
                    process.kill()


def processes_in(folder: str) -> Iterator[psutil.Process]:
    """Yield the processes whose working folder, or one of whose arguments, is this folder or a path in it."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(place.startswith(folder) for place in (process.cwd(), *process.cmdline())):
                yield process


# --- the service, and the ceiling ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Server:
    """A server in its own process."""

    pid: int
    address: str
    log: Path
    """The file with the server's standard error."""
    ready_seconds: float
    """The seconds from the start of the process until its log said that it serves."""

    def signal(self, number: signal.Signals) -> None:
        """Signal the process."""
        os.kill(self.pid, number)

    @contextmanager
    def stub(self) -> Iterator[TrainingServiceStub]:
        """Yield a plain gRPC client of the server."""
        with grpc.insecure_channel(self.address) as channel:
            yield TrainingServiceStub(channel)


@contextmanager
def service(
    data_dir: Path,
    *,
    command: Sequence[str] = (),
    capacity: int = 1,
    program: Sequence[str] = (),
    **settings: str,
) -> Iterator[Server]:
    """Run the service on `data_dir` during the block. Jobs are processes that run `command`. If `command` is
    empty, the backend is the fake one.

    Settings are passed in the form `jobs__stop_grace="1"`. The only algorithm takes PARAMETERS. `program`
    replaces `training-service`.
    """
    make_dataset(data_dir)
    config = data_dir / "bench.toml"
    argv = json.dumps(list(command) or ["true"])
    config.write_text(f"[algorithms.{ALGORITHM}]\n{DECLARED}\nprocess.command = {argv}\n")
    flags = [f"--set={key.replace('__', '.')}={value}" for key, value in settings.items()]
    backend = "process" if command else "fake"
    arguments = ["--config", config, "--data-dir", data_dir, "--address", "127.0.0.1:0"]
    with serving(
        [
            *(*(program or [script("training-service")]), "serve", *map(str, arguments)),
            *("--capacity", str(capacity), "--backend", backend, *flags),
        ]
    ) as server:
        yield server


@contextmanager
def ceiling(
    statuses: Iterable[pb.GetTrainingStatusResponse] = (), *, is_raw: bool = False
) -> Iterator[Server]:
    """Run a grpc.aio server with empty handlers, which answer GetTrainingStatus with these messages.

    With `is_raw`, the server does not parse requests or serialize answers, and every job gets the first
    status.
    """
    texts = [status.SerializeToString().hex() for status in statuses]
    with serving(
        [sys.executable, "-m", "benchmarks.ceiling", *(["--raw"] if is_raw else []), *texts]
    ) as server:
        yield server


@contextmanager
def serving(argv: list[str]) -> Iterator[Server]:
    """Run a server process during the block, which begins when the process has logged its address.

    Raises RuntimeError with the log if that takes too long, or if the process ends first.
    """
    # The log is a file: a pipe would have to be read all the time.
    with tempfile.NamedTemporaryFile("r", prefix="bench-", suffix=".log") as log:
        started = time.monotonic()
        process = subprocess.Popen(argv, stderr=log.fileno(), stdin=subprocess.DEVNULL)
        try:
            address = _address(process, log.name)
            yield Server(process.pid, address, Path(log.name), time.monotonic() - started)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS)
            finally:
                process.kill()


def _address(process: "subprocess.Popen[bytes]", log: str) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        text = Path(log).read_text()
        if "serving at " in text:
            return text.partition("serving at ")[2].partition("\n")[0].partition(",")[0]
        time.sleep(0.005)
    raise RuntimeError(f"{process.args!r} does not serve:\n{Path(log).read_text()}")


def script(name: str) -> str:
    """Return the path of a command in the Python environment of this process."""
    return str(Path(sys.executable).with_name(name))


# --- load ---------------------------------------------------------------------------------------


class Client:
    """A client in its own process that keeps 64 calls in flight."""

    def __init__(self) -> None:
        argv = [sys.executable, "-m", "benchmarks.load"]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def calls_per_second(
        self,
        server: Server,
        method: str,
        *,
        seconds: float,
        job_ids: Sequence[int] = (),
        tokens: Sequence[str] = (),
        tls: Mapping[str, str] | None = None,
    ) -> float:
        """Make calls for `seconds`, and return the calls per second.

        If the method needs jobs or tokens, the calls use `job_ids` and `tokens` in turn. `tls` has the paths
        of the client's files: ca, and perhaps cert and key.
        """
        assert self._process.stdin
        assert self._process.stdout
        order = {"address": server.address, "method": method, "seconds": seconds}
        order |= {"job_ids": list(job_ids), "tokens": list(tokens), "tls": dict(tls or {})}
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=15)


def interleaved(rounds: int, *measures: Callable[[], Measured]) -> list[list[Measured]]:
    """Call each measure once in each round, and return the results by measure.

    The order is A B C, C B A, …, so that noise affects all measures alike.
    """
    found: list[list[Measured]] = [[] for _ in measures]
    for number in range(rounds):
        order = list(zip(measures, found, strict=True))
        for measure, values in order if number % 2 == 0 else reversed(order):
            values.append(measure())
    return found


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of ours/theirs over the rounds. Noise that lasts a whole round cancels out."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


# --- jobs ---------------------------------------------------------------------------------------


def make_dataset(data_dir: Path, *, real: bool = False) -> None:
    """Make version v1 of dataset 1, with empty files or, if `real`, with the questions of the demo."""
    folder = data_dir / "storage" / "versionedDatasets" / "1" / "v1"
    folder.mkdir(parents=True, exist_ok=True)
    if real:
        argv = [sys.executable, "-m", "intent_classification.prepare_data", "--json"]
        made = subprocess.run(
            [*argv, "--storage", str(data_dir / "made")], check=True, stdout=subprocess.PIPE
        ).stdout
        for file in (data_dir / "made").rglob(f"{json.loads(made)['version']}/*.csv"):
            shutil.copy(file, folder)
    for name in ("examples.csv", "labels.csv"):
        (folder / name).touch()


def request(**parameters: str) -> pb.TrainRequest:
    """Return a request to train the benchmarks' algorithm on version v1 of dataset 1."""
    return pb.TrainRequest(
        metadata=pb.TrainingJobMetadata(
            algorithm=ALGORITHM,
            dataset_id="1",
            name="test1",
            train_data_version_hash="v1",
            output_model_name="my-model",
            parameters={"LR": "4", "EPOCHS": "15", "BATCH_SIZE": "64", "FC_SIZE": "128", **parameters},
        )
    )


@dataclass(frozen=True, slots=True)
class Filling:
    """The jobs of a store, in this order: a job that runs for ever, if `holder`; ended jobs; queued jobs."""

    finished: int = 0
    queued: int = 0
    holder: bool = True

    @property
    def finished_ids(self) -> range:
        """The ids of the ended jobs."""
        return range(1 + self.holder, 1 + self.holder + self.finished)

    @property
    def queued_ids(self) -> range:
        """The ids of the queued jobs."""
        return range(self.finished_ids.stop, self.finished_ids.stop + self.queued)


def fill(data_dir: Path, filling: Filling) -> None:
    """Put the jobs into the service's store. The file for a filling is written only once, and then copied."""
    data_dir.mkdir(parents=True, exist_ok=True)
    shutil.copy(_filled(filling), data_dir / "jobs.db")


_TEMPLATES = tempfile.TemporaryDirectory(prefix="bench-stores-")


@functools.cache
def _filled(filling: Filling) -> Path:
    path = Path(_TEMPLATES.name) / f"{len(list(Path(_TEMPLATES.name).iterdir()))}" / "jobs.db"
    write_jobs(path, _jobs(filling))
    return path


def group_of_one() -> GroupSpec:
    """Return the resolved spec of a group of one instance."""
    instance = InstanceSpec(command=("python", "-m", "intent_classification.train"), nproc_per_node=1)
    return GroupSpec(roles={"master": 1}, backend="process", trainers=instance)


def stored_spec(**parameters: str) -> JobSpec:
    """Return the spec that the service makes from `request(**parameters)`, but with another environment.

    The environment has RUN_SECONDS=forever, so the fake backend runs such a job for ever.
    """
    common = request(**parameters).metadata
    sent = dict(common.parameters)
    return JobSpec(
        group=group_of_one(),
        algorithm=ALGORITHM,
        dataset_id=common.dataset_id,
        dataset_version=common.train_data_version_hash,
        name=common.name,
        model_name=common.output_model_name,
        parameters=sent,
        environment={**sent, "RUN_SECONDS": "forever"},
        data_uri="/data/versionedDatasets/1/v1",
        model_root="/data/models/my-model",
        checkpoint_root="/data/checkpoints",
    )


def _jobs(filling: Filling) -> Iterator[Job]:
    now, spec = datetime.now(UTC), stored_spec()
    for job_id in range(1, filling.queued_ids.stop):
        job = new_job(job_id, spec, now)
        if job_id in filling.finished_ids:
            running = job.admitted(now).observed((RankStatus(0, Phase.SUCCEEDED, 0),)).running(now)
            job = running.ended(Ending(JobState.SUCCEEDED, now), now)
        yield job


async def many(work: Callable[[int], object], keys: Iterable[int]) -> None:
    """Await `work` for each key, for at most 256 keys at a time."""
    # A shared iterator serves as the queue of the workers.
    left = iter(keys)

    async def worker() -> None:
        for key in left:
            await work(key)  # type: ignore[misc]

    await asyncio.gather(*(worker() for _ in range(_SEED_IN_FLIGHT)))


def commits(data_dir: Path) -> int:
    """Return the number of transactions that were committed since the service opened its store.

    SQLite counts them in the header of the WAL index (sqlite.org/walformat.html, "iChange").
    """
    header = (data_dir / "jobs.db-shm").read_bytes()[:12]
    return int(struct.unpack("=I", header[8:12])[0])

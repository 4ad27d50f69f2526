"""Trains with every framework on every engine, on 1, 2 and 3 instances: `python -m benchmarks.frameworks`.

Each cell of the table is one run of an example of trainer_images through the service. On every engine, the
data, the requests and the code are the same; only `backend` differs. A cell shows the time from submission to
end, and the test accuracy. The service refuses combinations that cannot run; the cell shows its reason. A
full run takes an hour, mostly to build images and load them into the cluster. Results are kept in
.local/frameworks.json, so that the table can be filled by several runs.

--backends process,docker,kubernetes  --sizes 1,2,3  --only TEXT  --write (into docs/frameworks/README.md)
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.progress import Progress

from benchmarks.support import clean_up_on_sigterm, make_dataset, script, serving, workspace
from training_service._generated import training_service_pb2 as pb
from training_service.client import TrainingClient
from training_service.client.errors import TrainingServiceError

ROOT = Path(__file__).parents[1]
ALGORITHMS = ROOT / "trainer_images" / "algorithms.toml"
PAGE = ROOT / "docs" / "frameworks" / "README.md"
KEPT = ROOT / ".local" / "frameworks.json"
CLUSTER = ROOT / "tests" / "cluster" / "cluster"
EXAMPLES = tuple(f"{name}_questions" for name in ("pytorch", "tensorflow", "jax", "horovod", "mpi"))
BEGIN, END = "<!-- table: python -m benchmarks.frameworks --write -->", "<!-- end of the table -->"
_PORT = 51077
_NAMESPACE = "frameworks"
_PATIENCE = 300.0
_FAILED = "**failed**"


@dataclass(frozen=True)
class Training:
    """The request of a row of the table, without its number of instances."""

    name: str
    algorithm: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    processes: int = 1


TRAININGS = (
    Training("PyTorch", "pytorch"),
    Training("PyTorch, 2 processes an instance", "pytorch", processes=2),
    Training("PyTorch, elastic from 1", "pytorch-elastic", {"MIN_INSTANCES": "1"}),
    Training("TensorFlow, workers", "tensorflow-workers"),
    Training("TensorFlow, and a parameter server", "tensorflow-parameter-server"),
    Training("JAX", "jax"),
    Training("Horovod", "horovod"),
    Training("MPI", "mpi"),
    Training("MPI, 2 processes an instance", "mpi", processes=2),
)


def cell(client: TrainingClient, training: Training, instances: int) -> str:
    """Train once, and return the text of the cell: time and accuracy, or the reason for a refusal or
    failure.
    """
    options = pb.PodOptions(nproc_per_node=training.processes) if training.processes > 1 else None
    try:
        job = client.submit(
            training.algorithm,
            "1",
            "v1",
            instances=instances,
            parameters=dict(training.parameters),
            pod_options=options,
        )
    except TrainingServiceError as error:
        return f"refused: {str(error).partition(':')[2].strip()}"
    ended = client.wait(job, timeout=_PATIENCE)
    if ended.status != pb.succeed:
        print(ended.diagnosis.detail, file=sys.stderr)
        return f"{_FAILED}: {ended.diagnosis.summary}"
    text = "".join(piece.text for piece in client.logs(job, all_ranks=True))
    [accuracy] = re.findall(r"test accuracy (0\.\d+)", text)
    seconds = (ended.finished_at.ToNanoseconds() - ended.submitted_at.ToNanoseconds()) / 1e9
    return f"{seconds:.1f} s, {accuracy}"


# --- engines --------------------------------------------------------------------------------------


@contextmanager
def service(backend: str, folder: Path) -> Iterator[TrainingClient]:
    """Run a service with the examples on this machine, and yield a client. `backend` names the engine."""
    storage = folder / "storage"
    make_dataset(folder, real=True)
    folder.chmod(0o755)
    for writable in (storage, storage / "models", storage / "checkpoints"):
        writable.mkdir(exist_ok=True)
        writable.chmod(0o777)  # pods and containers run as another user
    config = folder / "frameworks.toml"
    more, environment = {"process": _processes, "docker": _docker, "kubernetes": _pods}[backend](storage)
    config.write_text(f'backend = "{backend}"\n{more}\n{ALGORITHMS.read_text()}')
    os.environ |= environment
    with (
        serving(
            [
                *(script("training-service"), "serve", "--config", str(config), "--data-dir", str(folder)),
                *("--address", f"0.0.0.0:{_PORT}", "--insecure", "--capacity", "8"),
            ]
        ) as server,
        TrainingClient(server.address) as client,
    ):
        yield client


def _processes(_: Path) -> tuple[str, Mapping[str, str]]:
    subprocess.run([ROOT / "scripts" / "install-frameworks"], check=True, stdout=sys.stderr)
    return "", {}


def _docker(storage: Path) -> tuple[str, Mapping[str, str]]:
    environment: dict[str, str] = {}
    if "DOCKER_HOST" not in os.environ and not Path("/var/run/docker.sock").exists():
        output = subprocess.run(
            [CLUSTER.with_name("docker-up")], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        words = [word for word in shlex.split(output) if "=" in word]
        environment = dict(word.rstrip(";").split("=", 1) for word in words)
    subprocess.run(
        [ROOT / "scripts" / "images", *EXAMPLES],
        check=True,
        stdout=sys.stderr,
        env={**os.environ, **environment},
    )
    # An engine may lack a default network, as the engine of the tests does.
    docker = ["docker", "network"]
    subprocess.run(
        [*docker, "rm", _NAMESPACE], check=False, capture_output=True, env={**os.environ, **environment}
    )
    subprocess.run(
        [*docker, "create", _NAMESPACE], check=True, stdout=sys.stderr, env={**os.environ, **environment}
    )
    mount = f'{{ source = "{storage}", mount_path = "{storage}" }}'
    return f'[docker]\nnetwork = "{_NAMESPACE}"\n[docker.container]\nvolumes = [{mount}]', environment


def _pods(storage: Path) -> tuple[str, Mapping[str, str]]:
    subprocess.run([CLUSTER, "up"], check=True, stdout=sys.stderr)
    subprocess.run([ROOT / "scripts" / "images", "--load", *EXAMPLES], check=True, stdout=sys.stderr)
    kubeconfig = _cluster("kubeconfig").strip()
    _cluster("kubectl", "delete", "namespace,pv", _NAMESPACE, "--ignore-not-found")
    _cluster("kubectl", "create", "namespace", _NAMESPACE)
    common = {"storageClassName": "by-hand", "accessModes": ["ReadWriteOnce"]}
    items = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": _NAMESPACE},
            "spec": {
                **common,
                "capacity": {"storage": "1Gi"},
                "hostPath": {"path": str(storage)},
                "claimRef": {"name": "storage", "namespace": _NAMESPACE},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "storage", "namespace": _NAMESPACE},
            "spec": {**common, "resources": {"requests": {"storage": "1Gi"}}},
        },
    ]
    objects = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    _cluster("kubectl", "apply", "-f", "-", stdin=objects)
    return (
        f'[kubernetes]\nnamespace = "{_NAMESPACE}"\nkubeconfig = "{kubeconfig}"\n'
        f'[kubernetes.pod]\nvolumes = [{{ claim = "storage", mount_path = "{storage}" }}]',
        {},
    )


def _cluster(*arguments: str, stdin: str | None = None) -> str:
    done = subprocess.run(
        [CLUSTER, *arguments], check=True, stdout=subprocess.PIPE, text=True, input=stdin or ""
    )
    return done.stdout


# --- the table ------------------------------------------------------------------------------------


def table(cells: Mapping[str, str]) -> str:
    """Return a Markdown table: a row for each training and engine, a column for each size."""
    sizes = sorted({key.split("|")[2] for key in cells})
    heads = [f"{size} instance" if size == "1" else f"{size} instances" for size in sizes]
    lines = [f"| framework | backend | {' | '.join(heads)} |", "|---|---|" + "---|" * len(sizes)]
    for training in TRAININGS:
        for backend in ("process", "docker", "kubernetes"):
            found = [cells.get(f"{training.name}|{backend}|{size}", "") for size in sizes]
            if any(found):
                lines.append(f"| {training.name} | {backend} | {' | '.join(found)} |")
    return "\n".join(lines)


def write(cells: Mapping[str, str]) -> None:
    """Replace the table in the page docs/frameworks/README.md."""
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    PAGE.write_text(f"{head}{BEGIN}\n\n{table(cells)}\n\n{END}{tail}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--backends", default="process,docker,kubernetes")
    parser.add_argument("--sizes", default="1,2,3")
    parser.add_argument("--only", default="", help="run only trainings whose name contains this")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    sizes = [int(size) for size in asked.sizes.split(",")]
    trainings = [training for training in TRAININGS if asked.only.lower() in training.name.lower()]
    cells: dict[str, str] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    has_failed = False
    clean_up_on_sigterm()
    for backend in asked.backends.split(","):
        with (
            workspace() as folder,
            service(backend, folder) as client,
            Progress(transient=True) as progress,
        ):
            todo = [(training, size) for training in trainings for size in sizes]
            for training, size in progress.track(todo, description=backend):
                began = time.monotonic()
                key = f"{training.name}|{backend}|{size}"
                cells[key] = cell(client, training, size)
                has_failed |= cells[key].startswith(_FAILED)
                print(f"{key}: {cells[key]}  ({time.monotonic() - began:.0f} s)", file=sys.stderr)
                KEPT.parent.mkdir(exist_ok=True)
                KEPT.write_text(json.dumps(cells, indent=1))
    print(table(cells))
    if asked.write:
        write(cells)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())

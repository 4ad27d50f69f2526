"""The time from an edit to a running program: `python -m benchmarks.programs [--quick] [PART…]` (see PARTS).

Enter → first line: the time from the start of the process `trainctl run python3 train.py` until it prints the
first line of the program. The program's folder has 130 files, with 10 MB in all. Each round has new files, so
that all of them are sent. Then one line is added to one file, and the command runs again. For comparison,
`python train.py` runs without the service. The engine is warm: it has the image, and has run a job. Docker's
engine, the cluster and the small image with Python and grpcio are made by tests/cluster.

Uploads: benchmarks.uploads; an upload through a link that counts bytes and is cut in the middle; and a folder
of 1 GB, which is refused. torchrun: benchmarks.torchrun, of which only the training as an uploaded program
matters here.
"""

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import torchrun, uploads
from benchmarks.cutting import link_to
from benchmarks.kubernetes_support import cluster, new_namespace, or_left_out
from benchmarks.support import Row, clean_up_on_sigterm, print_table, script, service, serving, workspace
from tests.support.cluster import PROGRAM_IMAGE
from tests.support.docker_engine import DockerEngine, NoEngineHere
from tests.support.ports import free_port
from training_service.client import TrainingClient
from training_service.client.run.working_tree import read_folder

_FIRST_LINE = "begun\n"
_PROGRAM = f"print({_FIRST_LINE.strip()!r}, flush=True)\n"
_FILES = {"code": (120, 8 << 10), "data": (9, 1 << 20)}
_INSTANCE = "benchmark-programs"
_EDITED_SECONDS = 1.5
_REFUSED_SECONDS = 2.0
_SENT_SHARE = 1.05
_UNCHANGED_BYTES = 4096


# --- Enter → first line -------------------------------------------------------------------------


def _processes(quick: bool) -> list[Row]:
    with workspace() as folder, service(folder, command=("true",)) as server:
        return _first_lines("processes", server.address, folder / "tree", quick, 3.0, _EDITED_SECONDS)


def _docker(quick: bool) -> list[Row]:
    try:
        engine = DockerEngine.up()
    except NoEngineHere as error:
        return [Row(f"Docker: left out, because {error}", "")]
    settings = f'base_url = "{engine.url}"\ninstance = "{_INSTANCE}"\nprogram_image = "{PROGRAM_IMAGE}"\n'
    try:
        with workspace() as folder, _service_on("docker", folder, settings) as address:
            return _first_lines("Docker", address, folder / "tree", quick, 10.0)
    finally:
        engine.clear(_INSTANCE)


def _on_kubernetes(quick: bool) -> list[Row]:
    with cluster(node=True) as fresh, workspace() as folder:
        fresh.load_program_image(PROGRAM_IMAGE)
        settings = (
            f"kubeconfig = {json.dumps(str(fresh.kubeconfig))}\n"
            f'namespace = "{new_namespace(fresh)}"\nprogram_image = "{PROGRAM_IMAGE}"\n'
        )
        port = free_port()
        reports = f'[reports]\nlisten = "0.0.0.0:{port}"\naddress = "{fresh.address_for_pods()}:{port}"\n'
        more = f"[server]\ninsecure = true\n{reports}"
        with _service_on("kubernetes", folder, settings, more) as address:
            return _first_lines("a warm node", address, folder / "tree", quick, 10.0)


_kubernetes = or_left_out(_on_kubernetes, "Kubernetes")


@contextmanager
def _service_on(backend: str, folder: Path, settings: str, more: str = "") -> Iterator[str]:
    """Run a service on this backend during the block, and yield its address."""
    config = folder / "bench.toml"
    config.write_text(
        f'backend = "{backend}"\n[programs]\nenabled = true\n[jobs]\nstop_grace = 1\n'
        f"[{backend}]\n{settings}{more}"
    )
    arguments = ["--config", str(config), "--data-dir", str(folder), "--address", "127.0.0.1:0"]
    with serving([script("training-service"), "serve", *arguments, "--capacity", "4"]) as server:
        yield server.address


def _first_lines(
    engine: str, address: str, tree: Path, quick: bool, target: float, edited_target: float | None = None
) -> list[Row]:
    whole, edited, directly = [], [], []
    for number in range((3 if quick else 9) + 1):
        _write(tree, seed=number)
        seconds = _until_first_line([script("trainctl"), "run", "python3", "train.py"], tree, address)
        with (tree / "code" / "7").open("a") as file:
            file.write("one line more\n")
        again = _until_first_line([script("trainctl"), "run", "python3", "train.py"], tree, address)
        alone = _until_first_line([sys.executable, "train.py"], tree, address)
        if number:  # the first run warms up the engine
            whole.append(seconds)
            edited.append(again)
            directly.append(alone)
    size = read_folder(tree).size / 1e6
    name = f"{engine}: Enter → first line"
    return [
        _row(f"{name}, {size:.0f} MB sent", whole, directly, target),
        _row(f"{name}, one line edited", edited, directly, edited_target),
    ]


def _row(name: str, ours: list[float], peer: list[float], target: float | None) -> Row:
    middle = statistics.median(ours)
    return Row(
        f"{name} (load {os.getloadavg()[0]:.0f})",
        f"{middle:.2f} s ({min(ours):.2f} to {max(ours):.2f})",
        f"{statistics.median(peer):.2f} s",
        "",
        f"≤ {target:g} s" if target else "",
        middle <= target if target else None,
    )


def _until_first_line(argv: list[str], folder: Path, address: str) -> float:
    """Return the seconds from the start of a command until it prints the program's first line."""
    begin = time.perf_counter()
    with subprocess.Popen(
        argv,
        cwd=folder,
        env={**os.environ, "TRAINING_SERVICE_ADDRESS": address},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        line = process.stdout.readline()
        seconds = time.perf_counter() - begin
        _, problems = process.communicate(timeout=120)
    if line != _FIRST_LINE or process.returncode:
        raise RuntimeError(f"{argv}: status {process.returncode}, {line!r}\n{problems}")
    return seconds


def _write(tree: Path, seed: int) -> None:
    shutil.rmtree(tree, ignore_errors=True)
    made = random.Random(seed)
    for kind, (count, size) in _FILES.items():
        (tree / kind).mkdir(parents=True)
        for number in range(count):
            (tree / kind / str(number)).write_bytes(made.randbytes(size))
    (tree / "train.py").write_text(_PROGRAM)


# --- uploads ------------------------------------------------------------------------------------


def _uploads(quick: bool) -> list[Row]:
    return [*uploads.measure(quick), *_cut(), _refused()]


def _cut() -> list[Row]:
    """Upload a folder through a link that is cut once, in the middle. The upload then continues.

    Upload the same folder again. Return rows with the bytes that were sent each time.
    """
    with workspace() as folder:
        uploads.write_files(folder / "tree", seed=1)
        files = read_folder(folder / "tree")
        with service(folder) as server, link_to(server.address) as link:
            link.cut_after(files.size // 2)
            with TrainingClient(link.address) as client:
                client._programs.upload(files, None, ())
            share, cuts = link.sent / files.size, link.cuts
            before = link.sent
            with TrainingClient(link.address) as client:
                client._programs.upload(files, None, ())
            unchanged = link.sent - before
    if cuts != 1:
        raise RuntimeError(f"the link was cut {cuts} times instead of once")
    return [
        Row(
            f"uploads: {files.size / 1e6:.0f} MB cut in the middle: bytes on the wire",
            f"{share * files.size / 1e6:.1f} MB",
            f"{files.size / 1e6:.1f} MB",
            f"{share:.3f}",
            f"≤ {_SENT_SHARE} (framing; nothing twice)",
            share <= _SENT_SHARE,
        ),
        Row(
            "uploads: … the same tree again: bytes on the wire",
            f"{unchanged} bytes",
            target=f"≤ {_UNCHANGED_BYTES} (a connection, and the hash)",
            met=unchanged <= _UNCHANGED_BYTES,
        ),
    ]


def _refused() -> Row:
    """Run `trainctl run` in a folder with more than 1 GB, and return a row with the time until the folder is
    refused.
    """
    with workspace() as folder, service(folder) as server:
        tree = folder / "tree"
        _write(tree, seed=1)
        with (tree / "model.bin").open("wb") as file:
            file.truncate(1 << 30)
        seconds = []
        for _ in range(3):
            begin = time.perf_counter()
            done = subprocess.run(
                [script("trainctl"), "run", "python3", "train.py"],
                cwd=tree,
                env={**os.environ, "TRAINING_SERVICE_ADDRESS": server.address},
                capture_output=True,
                text=True,
                check=False,
            )
            seconds.append(time.perf_counter() - begin)
            if done.returncode == 0 or "model.bin" not in done.stderr:
                raise RuntimeError(f"a folder of 1 GB was not refused: {done.stderr}")
    middle = statistics.median(seconds)
    target = f"< {_REFUSED_SECONDS:g} s"
    return Row("uploads: Enter → 1 GB refused", f"{middle:.2f} s", "", "", target, middle < _REFUSED_SECONDS)


PARTS: dict[str, Callable[[bool], list[Row]]] = {
    "processes": _processes,
    "docker": _docker,
    "kubernetes": _kubernetes,
    "uploads": _uploads,
    "torchrun": torchrun.measure,
}


def measure(quick: bool) -> list[Row]:
    """Return the rows of all parts except benchmarks.uploads and benchmarks.torchrun."""
    return [*_processes(quick), *_docker(quick), *_kubernetes(quick), *_cut(), _refused()]


def main(arguments: list[str]) -> int:
    names = [name for name in arguments if not name.startswith("-")] or list(PARTS)
    if unknown := set(names) - set(PARTS):
        print(f"unknown part {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    clean_up_on_sigterm()
    rows = [row for name in names for row in PARTS[name]("--quick" in arguments)]
    print_table(rows)
    return 1 if any(row.met is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

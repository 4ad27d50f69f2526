"""Compares two predictions with measurements on emulated machines (see docs/scaling.md):

    python -m benchmarks.scaling [--predictions | --plans] [--quick]      (as root)

- the speed of three training runs on three and four instances, predicted from runs on one and two
  instances and from the links that network-check measures;
- the speed of the layout that the planner of `trainctl plan` puts first, compared with the fastest of the
  layouts that were tried, in several settings.

Each rank runs in its own machine of `links`. The machines have equal shares of 1.8 cores. While only some
ranks train, the other machines compute, so that each rank always shares caches and memory with the same
number of busy machines.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from select import select
from typing import Any

from benchmarks.links import Machine, Running, emulated, missing, place
from benchmarks.support import Row, run_alone
from training_service.client.planning import network_file, search
from training_service.client.planning.cluster import Cluster
from training_service.client.planning.costs import Layout, Training
from training_service.client.planning.model import Model
from training_service.client.scaling.laws import Scaling
from training_service.client.scaling.prediction import Network, predict

MACHINES, CORES = 4, 1.8
RATE = "200mbit"
WITHIN, PLANNED_WITHIN, PLANNED_OF_TEN = 0.15, 0.10, 9
BEGAN = time.monotonic()
PATIENCE = 120.0
"""The seconds after which a run counts as failed."""
CALIBRATED_AT = "1gbit"
"""The rate of links while devices are measured for the second part. Transfers then take almost no time."""
BUCKET = 25 << 20
SMALL = {"LAYERS": "4", "WIDTH": "128", "HEADS": "4", "CONTEXT": "32"}
LARGE = {"LAYERS": "4", "WIDTH": "256", "HEADS": "4", "CONTEXT": "32"}
TRAININGS: Mapping[str, tuple[dict[str, str], dict[str, Any]]] = {
    "language model, 0.8 million parameters": ({**SMALL, "BATCH_SIZE": "24"}, {"model": "language"}),
    "language model, 3.3 million parameters": ({**LARGE, "BATCH_SIZE": "24"}, {"model": "language"}),
    "questions, 0.3 million parameters": ({}, {"model": "questions", "batch": 1536}),
}
"""The training runs by name, each with the environment and the settings of `scaling_rank`."""
SETTINGS = [
    (rate, model, batch)
    for model, batch in ((LARGE, 16), (SMALL, 32), (LARGE, 8), (SMALL, 8))
    for rate in ("400mbit", "50mbit", "100mbit")
][:10]
"""The emulated settings of the second part: the rate of links, the model, the batch."""
PARTS = ("predictions", "plans")
TRIED: Sequence[Mapping[str, int | str]] = [
    {},
    {"data": 2},
    {"data": 4},
    {"data": 4, "strategy": "zero1"},
    {"pipeline": 2, "micro_batches": 4},
    {"pipeline": 4, "micro_batches": 8},
    {"data": 2, "pipeline": 2, "micro_batches": 4},
    {"tensor": 2},
]
"""The layouts that are measured besides the planner's choice."""


@dataclass
class Ranks:
    """One rank in each machine. A rank imports PyTorch only once, and then runs any number of tasks."""

    machines: list[Running]
    folder: Path
    _processes: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        with (self.folder / "errors").open("w") as errors:
            for number, machine in enumerate(self.machines):
                cpu = number % (os.cpu_count() or 1)
                process = machine.start(
                    *(sys.executable, "-m", "benchmarks.scaling_rank", str(cpu)),
                    stdin=-1, stdout=-1, stderr=errors,
                )  # fmt: skip
                self._processes.append(process)

    def close(self) -> None:
        """End the ranks, and the processes that they have started."""
        for process in self._processes:
            process.stdin.close()  # then the rank ends its task and itself
        for process in self._processes:
            process.wait(PATIENCE)
            process.stdout.close()

    def run(
        self, count: int, task: str, environment: Mapping[str, str], settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Run a task on `count` ranks while the other machines compute. Return the answer of the first rank.

        Raises SystemExit if a rank fails or does not answer.
        """
        chosen = self._processes[:count]
        for process in self._processes[count:]:
            self._order(process, "occupy", {}, {})
        for rank, process in enumerate(chosen):
            own = {**place(rank, self.machines[:count]), "GROUP_TIMEOUT": "60", **environment}
            self._order(process, task, own, settings)
        answers = [self._answer(process) for process in chosen]
        if errors := {answer["error"] for answer in answers if "error" in answer}:
            raise SystemExit(f"scaling: {task} on {count} ranks, {dict(environment)}: {'; '.join(errors)}")
        return answers[0]

    def limit(self, rate: str) -> None:
        """Limit all links to this rate."""
        for machine in self.machines:
            machine.limit(rate)

    def network(self) -> network_file.Links:
        """Measure the links by network-check, and return the result."""
        parameters = {"SIZES": "8,262144,2097152", "SIZE_SECONDS": "1", "MODEL_URI": str(self.folder / "net")}
        self.run(len(self.machines), "network", parameters, {})
        found = network_file.read(self.folder / "net" / "network.json")
        links = found.outer or found.inner  # the machines share a host name, so only `inner` is set
        assert links
        return links

    def _order(self, process: Any, task: str, environment: Mapping[str, str], settings: Any) -> None:
        process.stdin.write(
            json.dumps({"task": task, "environment": dict(environment), "settings": settings}) + "\n"
        )
        process.stdin.flush()

    def _answer(self, process: Any) -> dict[str, Any]:
        if not select([process.stdout], [], [], PATIENCE)[0]:
            raise SystemExit(f"scaling: a rank did not answer within {PATIENCE:g} s")
        if not (line := process.stdout.readline()):
            raise SystemExit(f"scaling: a rank ended: {(self.folder / 'errors').read_text()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def _ranks(rate: str) -> Iterator[Ranks]:
    machines = [Machine(rate, cpus=CORES / MACHINES)] * MACHINES
    with emulated(machines) as running, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        ranks = Ranks(running, Path(folder))
        try:
            yield ranks
        finally:
            ranks.close()


def measure(quick: bool, parts: Sequence[str] = PARTS) -> list[Row]:
    """Return the rows of the parts. With `quick`, runs are shorter, with only one model and two settings."""
    if lacking := missing():
        return [Row("scaling", f"not measured: it needs {lacking}")]
    with _ranks(RATE) as ranks:
        names = list(TRAININGS)[: 1 if quick else None]
        rows = []
        if "predictions" in parts:
            rows += _predictions(ranks, names, seconds=3 if quick else 6)
        if "plans" in parts:
            rows += _plans(ranks, SETTINGS[:2] if quick else SETTINGS, seconds=2 if quick else 3)
    return rows


def _predictions(ranks: Ranks, names: Sequence[str], seconds: float) -> list[Row]:
    links = ranks.network()
    rows = [
        Row(f"scaling: links of {RATE}", f"{links.latency * 1e3:.2f} ms, {links.bandwidth / 1e6:.2f} MB/s")
    ]
    for name in names:
        environment, settings = TRAININGS[name]
        found = {
            n: ranks.run(n, "train", environment, {**settings, "seconds": seconds})
            for n in range(1, MACHINES + 1)
        }
        times = {n: each["seconds"] for n, each in found.items()}
        size = found[1]["bytes"]
        network = Network(links.latency, links.bandwidth, size, max(1, -(-size // BUCKET)))
        prediction = predict(times[1], times[2], Scaling.STRONG, network)
        for n in (3, 4):
            ratio = prediction.seconds(n) / times[n]
            _add(
                rows,
                Row(
                    f"scaling: {name}, step on {n}, by 1 ({times[1]:.3f} s) and 2 ({times[2]:.3f} s)",
                    f"{times[n]:.3f} s, load {os.getloadavg()[0]:.1f}",
                    f"{prediction.seconds(n):.3f} s",
                    f"{ratio:.3f}",
                    f"within {WITHIN:.0%}",
                    met=abs(ratio - 1) <= WITHIN,
                ),
            )
    return rows


def _add(rows: list[Row], row: Row) -> None:
    """Add a row, and show it at once, because each row takes minutes."""
    rows.append(row)
    print("; ".join(filter(None, (row.name, row.measured, row.peer, row.ratio))), file=sys.stderr, flush=True)


def _plans(ranks: Ranks, settings: Sequence[tuple[str, Mapping[str, str], int]], seconds: float) -> list[Row]:
    rows: list[Row] = []
    links: dict[str, network_file.Links] = {}
    devices: dict[tuple[str, int], Device] = {}
    good = 0
    for rate, sizes, batch in settings:
        training = sizes["WIDTH"], batch
        if training not in devices:
            ranks.limit(CALIBRATED_AT)
            devices[training] = _device(ranks, {**sizes, "BATCH_SIZE": str(batch)}, seconds)
        ranks.limit(rate)
        if rate not in links:
            links[rate] = ranks.network()
        environment = {**sizes, "BATCH_SIZE": str(batch)}
        tried = {_layout(each): _step(ranks, _layout(each), environment, seconds) for each in TRIED}
        choice = _choice(sizes, batch, links[rate], devices[training])
        if choice not in tried:
            tried[choice] = _step(ranks, choice, environment, seconds)
        fastest = min(tried, key=tried.__getitem__)
        ratio = tried[choice] / tried[fastest]
        good += ratio <= 1 + PLANNED_WITHIN
        _add(
            rows,
            Row(
                f"scaling: plan at {rate}, width {sizes['WIDTH']}, batch {batch}: {_words(choice)}",
                f"{tried[choice]:.3f} s, load {os.getloadavg()[0]:.1f}",
                f"{tried[fastest]:.3f} s: {_words(fastest)}",
                f"{ratio:.3f}",
            ),
        )
    done = len(rows)
    least = -(-PLANNED_OF_TEN * done // 10)
    name = f"scaling: settings in which the plan is within {PLANNED_WITHIN:.0%} of the fastest layout"
    rows.append(
        Row(
            name,
            f"{good} of {done}",
            target=f"≥ {least} of {done}",
            met=good >= least,
        )
    )
    return rows


@dataclass(frozen=True)
class Device:
    """The costs of a training run on one device."""

    seconds: float
    """The part of a step's seconds that grows with the number of its examples."""
    overhead: float
    """The seconds that all layers together add to each micro-batch, independent of its size."""


def _device(ranks: Ranks, environment: Mapping[str, str], seconds: float) -> Device:
    """Return the costs of a training run on one device, computed from the step times of a pipeline on two
    devices, with 4 and with 8 micro-batches.

    A step of m micro-batches on two equal stages takes (m + 1) (seconds / 2m + overhead / 2).
    """
    few, many = 4, 8
    took = {
        m: _step(ranks, Layout(pipeline=2, micro_batches=m), environment, seconds) / (m + 1) * 2
        for m in (few, many)
    }
    overhead = max(0.0, (took[many] * many - took[few] * few) / (many - few))
    return Device((took[few] - overhead) * few, overhead)


def _choice(sizes: Mapping[str, str], batch: int, links: network_file.Links, device: Device) -> Layout:
    """Return the layout that the planner of `trainctl plan` expects to be the fastest."""
    layers = int(sizes["LAYERS"])
    model = Model(
        layers=layers,
        width=int(sizes["WIDTH"]),
        heads=int(sizes["HEADS"]),
        sequence=int(sizes["CONTEXT"]),
        vocabulary=256,
        tied=False,
        positions=int(sizes["CONTEXT"]),
    )
    training = Training(model, batch, precision="fp32", optimizer="adamw")
    cluster = Cluster(
        memory=64e9,
        speed=model.step_operations(batch) / device.seconds,
        layer_overhead=device.overhead / layers,
        machines=MACHINES,
        outer_bandwidth=links.bandwidth,
        outer_latency=links.latency,
        efficiency=1.0,
        link_efficiency=1.0,
    )
    limits = search.Limits(strategies=("ddp", "zero1"), recomputations=("none",), offloads=("none",))
    found = search.decide(training, cluster, limits=limits, least_gain=0)
    assert isinstance(found, search.Decision)
    return found.best.layout


def _step(ranks: Ranks, layout: Layout, environment: Mapping[str, str], seconds: float) -> float:
    chosen = {
        "STRATEGY": layout.strategy,
        "TENSOR": str(layout.tensor),
        "PIPELINE": str(layout.pipeline),
        "MICRO_BATCHES": str(layout.micro_batches),
    }
    if layout.stages > 1:
        chosen |= {"SCHEDULE": "interleaved", "STAGES_PER_RANK": str(layout.stages)}
    settings = {"model": "language", "seconds": seconds}
    found = ranks.run(layout.devices, "train", {**environment, **chosen}, settings)
    return float(found["seconds"])


def _layout(parts: Mapping[str, int | str]) -> Layout:
    return Layout(**parts)  # type: ignore[arg-type]


def _words(layout: Layout) -> str:
    parts = {"data": layout.data, "tensor": layout.tensor, "pipeline": layout.pipeline}
    words = [f"{name} {number}" for name, number in parts.items() if number > 1]
    if layout.micro_batches > 1:
        words.append(f"{layout.micro_batches} micro-batches")
    if layout.stages > 1:
        words.append(f"{layout.stages} stages each")
    if layout.strategy != "ddp":
        words.append(layout.strategy)
    return ", ".join(words) or "one device"


if __name__ == "__main__":
    asked = [part for part in PARTS if f"--{part}" in sys.argv[1:]]
    run_alone(lambda quick: measure(quick, asked or PARTS))
    print(f"{time.monotonic() - BEGAN:.0f} s, load {os.getloadavg()[0]:.1f}")

"""Loss and bytes of each compression of gradients, for the language model on real text.

    python -m benchmarks.compression [--quick]      (as root, because links.py emulates two machines)

Two ranks train the same model on the same examples with each GRADIENT_COMPRESSION. The bytes of a step are
measured twice: the training reports those of its gradients (gradient_sent_bytes), and the first machine
counts all bytes that it sends. The machine's count includes the headers of packets, the sums of losses and
the start of the group. It is divided by the number of steps.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.links import Machine, Running, emulated, missing, place
from benchmarks.support import Row, run_alone

KINDS: dict[str, dict[str, str]] = {
    "none": {},
    "fp16": {},
    "bf16": {},
    "powersgd": {"POWERSGD_RANK": "1"},
    "powersgd of rank 4": {"POWERSGD_RANK": "4"},
}
MODEL = {"LAYERS": "2", "WIDTH": "64", "CONTEXT": "64", "BATCH_SIZE": "16"}


def measure(quick: bool) -> list[Row]:
    if lacking := missing():
        return [Row("compression: loss and bytes", f"not measured: it needs {lacking}")]
    steps = 60 if quick else 300
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, emulated([Machine(), Machine()]) as machines:
        data = _data(folder)
        rows = []
        for kind, parameters in KINDS.items():
            compression = {"GRADIENT_COMPRESSION": kind.split()[0], "STEPS": str(steps), **parameters}
            last, sent = _trained(machines, {**MODEL, **compression}, data, f"{folder}/{kind}")
            counted = last["gradient_sent_bytes"]
            rows.append(
                Row(
                    f"compression: {kind}, {steps} steps of {last['parameter_bytes'] / 1e3:.0f} kB",
                    f"loss {last['loss']:.3f}, validation {last['validation_loss']:.3f}",
                    f"{counted / 1e3:.0f} kB a step counted, {sent / steps / 1e3:.0f} kB sent",
                )
            )
        return rows


def _data(folder: str) -> str:
    command = (sys.executable, "-m", "language_model.prepare_data", "--storage", folder, "--json")
    prepared: dict[str, Any] = json.loads(subprocess.check_output(command, text=True))
    return str(prepared["uri"])


def _trained(
    machines: list[Running], parameters: dict[str, str], data: str, model: str
) -> tuple[dict[str, float], int]:
    """Train on the machines. Return the final metrics, and the bytes that the first machine sent."""
    before = machines[0].sent_bytes()
    ranks = [
        machine.start(
            *(sys.executable, "-m", "language_model.train"),
            environment={
                **place(rank, machines), **parameters, "TRAINING_DATA_URI": data, "MODEL_URI": model
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank, machine in enumerate(machines)
    ]  # fmt: skip
    try:
        outputs = [rank.communicate(timeout=900) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    if any(rank.returncode for rank in ranks):
        raise SystemExit("compression: a rank failed: " + "".join(errors for _, errors in outputs))
    lines = [line for line in outputs[0][0].splitlines() if line.startswith("::progress::")]
    metrics: dict[str, float] = json.loads(lines[-1].removeprefix("::progress::"))["metrics"]
    assert Path(model).is_dir()
    return metrics, machines[0].sent_bytes() - before


if __name__ == "__main__":
    run_alone(measure)

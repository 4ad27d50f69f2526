"""Compares the bandwidths that network-check and iperf3 measure on the same link, at several rates.

    python -m benchmarks.network_check [--quick]      (as root, with iperf3: apt-get install iperf3)

Two emulated machines (links.py) are joined by links, with one rate after the other. At each rate, the two
programs measure in turn, and their medians count. In another measurement, the link is cut, and both ranks of
network-check must report it.
"""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.links import Machine, Running, emulated, missing, place
from benchmarks.support import Row, run_alone

RATES = ("20mbit", "100mbit", "400mbit")
WITHIN = 0.05
PATIENCE = 20
"""GROUP_TIMEOUT of the measurement in which the link is cut, in seconds."""
SIZES = "8,65536,1048576,4194304"


def measure(quick: bool) -> list[Row]:
    if lacking := missing() or ("" if shutil.which("iperf3") else "iperf3"):
        return [Row("network-check: bandwidth", f"not measured: it needs {lacking}")]
    return [*(_row(rate, rounds=1 if quick else 3) for rate in RATES), _cut()]


def _row(rate: str, rounds: int) -> Row:
    ours, theirs = [], []
    with emulated([Machine(rate), Machine(rate)]) as (first, second):
        for _ in range(rounds):
            theirs.append(_iperf3(first, second))
            ours.append(_network_check(first, second))
    measured, peer = statistics.median(ours), statistics.median(theirs)
    ratio = measured / peer
    return Row(
        f"network-check: bandwidth of a link of {rate}, against iperf3",
        f"{measured / 1e6:.2f} MB/s",
        f"{peer / 1e6:.2f} MB/s",
        f"{ratio:.3f}",
        f"within {WITHIN:.0%}",
        met=abs(ratio - 1) <= WITHIN,
    )


def _iperf3(first: Running, second: Running) -> float:
    """Measure with iperf3, and return the bytes per second that arrive at the second machine."""
    server = second.start("iperf3", "--server", "--one-off", stdout=subprocess.DEVNULL)
    try:
        for _ in range(50):  # until the server listens
            client = first.start(
                *("iperf3", "--client", second.address, "--json", "--time", "4", "--omit", "1"),
                stdout=subprocess.PIPE,
            )
            output, _ = client.communicate(timeout=60)
            # Without a server, some versions end with exit code 0, too.
            if received := json.loads(output)["end"].get("sum_received"):
                return float(received["bits_per_second"]) / 8
            time.sleep(0.1)
    finally:
        server.kill()
        server.wait()
    raise SystemExit("network-check: iperf3 did not answer")


def _cut() -> Row:
    """Cut the link while a pair is measured, and return a row: both ranks must end, and name the pair."""
    endless = {"SIZES": "8", "REPEATS": "10000", "SIZE_SECONDS": "1000", "GROUP_TIMEOUT": str(PATIENCE)}
    with emulated([Machine(), Machine()]) as machines, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        ranks = _start(machines, folder, endless)
        try:
            assert ranks[0].stdout
            ranks[0].stdout.readline()
            time.sleep(1)  # so that the cut comes within the measurement, which takes minutes
            machines[1].cut()
            began = time.monotonic()
            errors = [rank.communicate(timeout=10 * PATIENCE)[1] for rank in ranks]
            taken = time.monotonic() - began
        finally:
            for rank in ranks:
                rank.kill()
    named = all("while measuring the pair rank 0" in error for error in errors)
    failed = all(rank.returncode == 1 for rank in ranks)
    return Row(
        f"network-check: link cut while a pair is measured, GROUP_TIMEOUT {PATIENCE}: both ranks ended after",
        f"{taken:.1f} s, {'naming the pair' if named else 'without the pair'}",
        target=f"≤ {PATIENCE} s, with the pair",
        met=named and failed and taken <= PATIENCE,
    )


def _network_check(*machines: Running) -> float:
    """Run network-check, and return the bytes per second that it measures from the first machine to the
    second.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        ranks = _start(machines, folder, {"SIZES": SIZES, "SIZE_SECONDS": "4", "GROUP_TIMEOUT": "60"})
        try:
            errors = [rank.communicate(timeout=300)[1] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        if any(rank.returncode for rank in ranks):
            raise SystemExit("network-check: a rank failed: " + "".join(errors))
        found = json.loads((Path(folder) / "network.json").read_text())
        [bandwidth] = [pair["bandwidth_bytes_per_s"] for pair in found["pairs"] if pair["source"] == 0]
        return float(bandwidth)


def _start(
    machines: Sequence[Running], folder: str, parameters: dict[str, str]
) -> list[subprocess.Popen[str]]:
    return [
        machine.start(
            *(sys.executable, "-m", "network_check.measure"),
            environment={**place(rank, machines), "MODEL_URI": folder, **parameters},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank, machine in enumerate(machines)
    ]


if __name__ == "__main__":
    run_alone(measure)

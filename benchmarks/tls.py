"""TLS and client certificates: the rate of calls with and without them, and whether calls fail while the
server's certificate is replaced.

The same client (64 calls in flight, a separate process) calls three services in turn, in the same run:
without TLS, with TLS, and with TLS and client certificates. The services have few jobs. The capacity is 1,
and a job that never ends uses it, so no other job starts. In the rows "new connections", each call opens a
connection. Then further calls are made while the server's certificate is replaced about once a second. A call
that fails ends the benchmark.
"""

import statistics
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.status import FEW, mixed_ids
from benchmarks.support import (
    Client,
    Row,
    Server,
    fill,
    interleaved,
    ratio,
    run_alone,
    service,
    workspace,
)
from tests.support.certificates import LOCAL, Authority

_REPLACE_SECONDS = 1.1


def measure(quick: bool) -> list[Row]:
    seconds, rounds = (1.5, 4) if quick else (0.8, 21)
    ids = mixed_ids(FEW)
    with workspace() as folder, closing(Client()) as client:
        authority = Authority(folder)
        own = authority.issue(subject="benchmark").write(folder, "client")
        given = {"ca": str(authority.file)}
        identified = {**given, "cert": str(own.certificate), "key": str(own.key)}
        for name in ("plain", "tls", "certificates"):
            fill(folder / name, FEW)
        files = authority.issue(*LOCAL).write(folder, "server")
        tls: dict[str, Any] = {
            "server__tls__certificate": str(files.certificate),
            "server__tls__key": str(files.key),
        }
        clients: dict[str, Any] = {
            "server__tls__client_ca": given["ca"],
            "server__tls__client_certificates": "required",
            "auth__operators": '["CN=benchmark"]',
        }
        with (
            service(folder / "plain") as plain,
            service(folder / "tls", **tls) as encrypted,
            service(folder / "certificates", **tls, **clients) as required,
        ):

            def rates(method: str) -> list[list[_Rate]]:
                def rate(server: Server, options: dict[str, str]) -> _Rate:
                    before = _cpu_seconds(server)
                    calls = client.calls_per_second(server, method, seconds=seconds, job_ids=ids, tls=options)
                    return _Rate(calls, (_cpu_seconds(server) - before) / (calls * seconds))

                return interleaved(
                    rounds,
                    lambda: rate(plain, {}),
                    lambda: rate(encrypted, given),
                    lambda: rate(required, identified),
                )

            rows = [
                row
                for name, method in (("status", "GetTrainingStatus"), ("train", "Train"))
                for row in _rows(name, rates(method))
            ]
            connects = rates("Connect")
            with _replacing(authority, folder) as replaced:
                rates("GetTrainingStatus")
                rates("Connect")
    rows += _rows("new connections", connects, target=None)
    return [
        *rows,
        Row("tls: replacements under 64 calls in flight, of which no call failed", f"{replaced[0]}"),
    ]


@dataclass(frozen=True, slots=True)
class _Rate:
    calls: float
    """Calls a second."""
    cpu: float
    """CPU seconds of the service for a call. Other programs on the machine affect this number less than they
    affect the rate.
    """


def _cpu_seconds(server: Server) -> float:
    times = psutil.Process(server.pid).cpu_times()
    return times.user + times.system


def _rows(name: str, rates: list[list[_Rate]], *, target: float | None = 0.9) -> Iterator[Row]:
    plain, tls, certificates = rates
    for what, measured in (("TLS", tls), ("TLS and a client certificate", certificates)):
        ours, theirs = ([each.calls for each in found] for found in (measured, plain))
        against = ratio(ours, theirs)
        yield Row(
            f"tls: {name} with {what}, calls/s against none",
            f"{statistics.median(ours):,.0f}/s",
            f"{statistics.median(theirs):,.0f}/s",
            f"{against:.2f}",
            f"≥ {target}" if target else "",
            against >= target if target else None,
        )
        ours, theirs = ([1e6 * each.cpu for each in found] for found in (measured, plain))
        yield Row(
            f"tls: {name} with {what}, CPU of the service a call",
            f"{statistics.median(ours):,.0f} µs",
            f"{statistics.median(theirs):,.0f} µs",
            f"{ratio(ours, theirs):.2f}",
        )


@contextmanager
def _replacing(authority: Authority, folder: Path) -> Iterator[list[int]]:
    """During the block, replace the server's certificate repeatedly.

    Yield a list with one number: the replacements so far.
    """
    done, replaced = threading.Event(), [0]

    def replace() -> None:
        while not done.wait(_REPLACE_SECONDS):
            authority.issue(*LOCAL).write(folder, "server")
            replaced[0] += 1

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        yield replaced
    finally:
        done.set()
        thread.join()


if __name__ == "__main__":
    run_alone(measure)

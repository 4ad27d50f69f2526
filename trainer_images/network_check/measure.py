"""Measures the network of a job: `python -m network_check.measure`."""

import json
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from trainer_kit import artifacts, environment, process
from trainer_kit.errors import GroupError
from trainer_kit.progress import Reporter, reporting

from network_check import collectives
from network_check.parameters import Parameters
from network_check.result import FILE, FORMAT, Bisection, CollectiveResult, PairResult, median_of, pair_result
from network_check.rounds import Pair, plan
from network_check.slowness import Slow, slow_links
from network_check.timing import Clock, Peer, receive_all, send_all

if TYPE_CHECKING:
    from trainer_kit.group import Group

log = logging.getLogger(__name__)


def measure(group: "Group") -> None:
    """Measure the network, and publish the result. With one rank, the result has no measurements."""
    parameters = Parameters.from_environment()
    local_size = environment.integer("LOCAL_WORLD_SIZE", default=1, at_least=1, at_most=group.size)
    with reporting(group) as reporter:
        if group.size == 1:
            log.info("nothing to measure: the job has one rank. Submit it with two or more instances")
        check = NetworkCheck(group, parameters, local_size, reporter)
        check.run()
        if not group.is_master:
            return
        description = {"job_id": environment.text("JOB_ID", "local"), "kind": FORMAT}
        with artifacts.publishing(environment.text("MODEL_URI"), description, reporter) as folder:
            (folder / FILE).write_text(json.dumps(check.result(), indent=1) + "\n", encoding="utf-8")


class NetworkCheck:
    """A measurement of the network. Every rank gets all results."""

    def __init__(self, group: "Group", parameters: Parameters, local_size: int, reporter: Reporter) -> None:
        self._group = group
        self._parameters = parameters
        self._local_size = local_size
        self._reporter = reporter
        self._clock = Clock(group.device)
        self._hosts: list[str] = [socket.gethostname()]
        self.pairs: list[PairResult] = []
        self.collectives: list[CollectiveResult] = []
        self.bisection: Bisection | None = None

    def run(self) -> None:
        """Measure the pairs of `plan`, the bisection and the collectives. All ranks must call this."""
        if self._group.size == 1:
            return
        with self._naming("joining"):
            self._hosts = self._of_all(socket.gethostname())
        rounds = plan(self._group.size, self._local_size)
        log.info("measuring %d ranks: pairs in %d rounds, then collectives", self._group.size, len(rounds))
        total = len(rounds) + len(collectives.OPERATIONS) + 1
        for number, pairs in enumerate(rounds, start=1):
            self._measure_round(number, pairs)
            self._reporter.report(step=number, total_steps=total)
            self._group.step(number)
        self.bisection = self._bisect()
        for number, operation in enumerate((*collectives.OPERATIONS, collectives.BARRIER), len(rounds) + 1):
            with self._naming(f"measuring {operation}"):
                self._measure_collective(operation)
            self._reporter.report(step=number)
            self._group.step(number)
        if self._group.is_master:
            self._report_summary()

    def result(self) -> dict[str, Any]:
        """Return the measurements in the schema of README.md."""
        median = median_of(self.pairs)
        size = self._group.size
        return {
            "format": FORMAT,
            "job_id": environment.text("JOB_ID", "local"),
            "attempt": environment.integer("JOB_ATTEMPT", 1, at_least=1, at_most=2**31),
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "backend": dist.get_backend() if size > 1 else "none",
            "device": self._group.device.type,
            "torch": torch.__version__,
            "world_size": size,
            "instances": [
                {
                    "instance": first // self._local_size,
                    "host": self._hosts[first],
                    "ranks": list(range(first, first + self._local_size)),
                }
                for first in range(0, size, self._local_size)
            ],
            "parameters": {
                "SIZES": ",".join(map(str, self._parameters.sizes)),
                "REPEATS": self._parameters.repeats,
                "SIZE_SECONDS": self._parameters.seconds,
                "SLOW_FACTOR": self._parameters.slow_factor,
            },
            "pairs": [asdict(pair) for pair in self.pairs],
            "collectives": [asdict(collective) for collective in self.collectives],
            "bisection": asdict(self.bisection) if self.bisection else None,
            "median": asdict(median) if median else None,
            "slow": [
                {name: value for name, value in asdict(slow).items() if value is not None}
                for slow in self._slow()
            ],
        }

    def _measure_round(self, number: int, pairs: list[Pair]) -> None:
        own = [pair for pair in pairs if self._group.rank in pair]
        found = [result for pair in own for result in self._measure_pair(pair)]
        text = ", ".join(f"{a} – {b}" for a, b in pairs)
        with self._naming(f"waiting for round {number}, in which the pairs {text} are measured"):
            everywhere = self._of_all(found)
        fresh = [result for results in everywhere for result in results]
        self.pairs += fresh
        self._reporter.report(
            pair_latency_s=max(result.latency_s for result in fresh),
            pair_bandwidth_bytes_per_s=min(result.bandwidth_bytes_per_s for result in fresh),
        )

    def _measure_pair(self, pair: Pair) -> Iterator[PairResult]:
        """Measure both directions of a pair. Yield the result of the direction in which this rank sends."""
        [other] = [rank for rank in pair if rank != self._group.rank]
        # Half of the group's time-out, so that the ranks of a broken pair fail first, and name the pair.
        peer = Peer(other, self._group.device, self._parameters.timeout / 2)
        for source in pair:
            destination = pair[0] if source == pair[1] else pair[1]
            with self._naming(f"measuring the pair {self._place(source)} → {self._place(destination)}"):
                if source != self._group.rank:
                    receive_all(peer)
                    continue
                sizes, latency = send_all(peer, self._parameters.sizes, self._parameters, self._clock)
            yield pair_result(source, destination, sizes, latency)

    def _measure_collective(self, operation: str) -> None:
        if operation == collectives.BARRIER:
            self.collectives.append(collectives.measure_barrier(self._group, self._parameters, self._clock))
            return
        found = collectives.measure(operation, self._group, self._parameters, self._clock)
        self.collectives.append(found)
        metrics = {
            f"{operation}_latency_s": found.latency_s,
            f"{operation}_bus_bytes_per_s": found.sizes[-1].bus_bytes_per_s,
        }
        self._reporter.report(**metrics)  # type: ignore[arg-type]  # all are metrics, none a typed parameter

    def _bisect(self) -> Bisection | None:
        """Let each instance of the lower half send to one of the upper half, all at the same time.

        The first rank of each instance represents it. If the number of instances is odd, the middle one takes
        no part. Returns None with fewer than four instances.
        """
        first_ranks = range(0, self._group.size, self._local_size)
        half = len(first_ranks) // 2
        if half < 2:
            return None
        lower, upper = first_ranks[:half], first_ranks[len(first_ranks) - half :]
        pairs = list(zip(lower, upper, strict=True))
        size = min(pair.sizes[-1].bytes for pair in self.pairs)
        own = next((pair for pair in pairs if self._group.rank in pair), None)
        seconds = 0.0
        with self._naming(f"measuring the bisection, {', '.join(f'{a} → {b}' for a, b in pairs)}"):
            dist.barrier()
            if own:
                [other] = [rank for rank in own if rank != self._group.rank]
                peer = Peer(other, self._group.device, self._parameters.timeout)
                message = peer.message(size)
                receives = self._group.rank == own[1]
                seconds = self._clock.seconds(
                    lambda: peer.receive(message) if receives else peer.send(message)
                )
            longest = max(self._of_all(seconds))
        return Bisection(size, longest, size * len(pairs) / longest)

    def _report_summary(self) -> None:
        slow = self._slow()
        median = median_of(self.pairs)
        assert median
        self._reporter.report(
            median_latency_s=median.latency_s,
            median_bandwidth_bytes_per_s=median.bandwidth_bytes_per_s,
            slow_links=float(len(slow)),
        )
        log.info(
            "median of %d links: %.3f ms, %.2f MB/s",
            len(self.pairs), median.latency_s * 1000, median.bandwidth_bytes_per_s / 1e6,
        )  # fmt: skip
        for each in slow:
            log.warning("slow: %s", each)
        if not slow:
            log.info("no link is %g times slower than usual", self._parameters.slow_factor)

    def _slow(self) -> list[Slow]:
        return slow_links(self.pairs, self._local_size, self._parameters.slow_factor)

    def _of_all(self, own: Any) -> list[Any]:
        """Return the values of all ranks, in the order of the ranks. All ranks wait for each other here."""
        values = [None] * self._group.size
        dist.all_gather_object(values, own)
        return values

    def _place(self, rank: int) -> str:
        return f"rank {rank} (instance {rank // self._local_size}, {self._hosts[rank]})"

    @contextmanager
    def _naming(self, action: str) -> Iterator[None]:
        """If the network fails during the block, raise a GroupError that names the action."""
        try:
            yield
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise GroupError(f"rank {self._group.rank} lost the network while {action}: {reason}") from error


if __name__ == "__main__":
    process.main(measure, Parameters.from_environment)

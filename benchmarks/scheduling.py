"""The planner alone: how fast it decides, its memory, and its fairness. Jobs are simulated, without a store.

Times of passes are CPU times, so that other programs on the machine do not count.
"""

import gc
import random
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from benchmarks.support import Row, run_alone
from job_tracker.scheduling.board import advanced
from job_tracker.scheduling.leaving import Stakes
from job_tracker.scheduling.model import (
    Allocation,
    Expected,
    Flavor,
    Gang,
    Limit,
    Node,
    Part,
    Plan,
    PreemptionRules,
    Promise,
    Queue,
    Running,
    Snapshot,
    Stake,
    Usage,
)
from job_tracker.scheduling.planner import PlannerOptions, plan
from job_tracker.scheduling.running import RunningGangs
from job_tracker.scheduling.waiting import WaitingGangs

_OPTIONS = PlannerOptions()
_SHALLOW, _DEEP = 10, 200
"""The numbers of jobs that wait in each queue. At most 100 jobs of all queues get reservations."""
_JOBS_OF_MACHINE = 8
_LENGTH = Expected(median=100.0, high=200.0)


class _World:
    """The waiting and running jobs of a simulation without a clock."""

    def __init__(self, capacity: int, queues: dict[str, Queue], machines: int = 0) -> None:
        nodes = tuple(
            Node(name=f"node-{number}", capacity={"instances": capacity // machines})
            for number in range(machines)
        )
        self.flavors = (Flavor(name="default", capacity={"instances": capacity}, nodes=nodes),)
        self.queues = queues
        self.waiting = WaitingGangs()
        self.running = RunningGangs()
        self.usage: dict[str, Usage] = {}
        self.promises: dict[int, Promise] = {}
        self.stakes = Stakes()
        self.claims: list[int] = []

    def snapshot(self) -> Snapshot:
        return Snapshot(
            flavors=self.flavors,
            queues=self.queues,
            waiting=self.waiting,
            running=self.running,
            usage=self.usage,
            promises=self.promises,
            stakes=self.stakes,
            claims=self.claims,
        )

    def end(self, job_id: int) -> None:
        """End a running job."""
        self.running.remove(job_id)
        self.stakes.pop(job_id)

    def stop(self, job_ids: Iterable[int], for_job: int, now: float) -> None:
        """Begin to stop running jobs for a waiting job."""
        for job_id in job_ids:
            stake = self.stakes[job_id]
            self.stakes[job_id] = replace(stake, is_leaving=True, leaves_for=for_job, noticed_at=now)
        self.claims.append(for_job)

    def turn(self, now: float) -> tuple[Plan, float]:
        """Make one pass and apply it. Return its plan, and the seconds of CPU time that the pass took."""
        snapshot = self.snapshot()
        before = time.thread_time()
        decided = plan(snapshot, now, _OPTIONS)
        took = time.thread_time() - before
        for admit in decided.admitted:
            gang = self.waiting.get(admit.job_id)
            if gang is not None:
                self.waiting.remove(admit.job_id)
                self.running.add(Running(gang, admit.allocation, now))
                self.stakes[admit.job_id] = Stake(attempt=1, saved_at=now, startup=10.0)
        self.promises = {reserve.job_id: reserve.promise for reserve in decided.reserved}
        return decided, took


def _thousand_queues() -> dict[str, Queue]:
    queues = {f"c{i}": Queue(name=f"c{i}") for i in range(10)}
    limits = {"default": {"instances": Limit(nominal=5)}}
    return queues | {f"q{i}": Queue(name=f"q{i}", parent=f"c{i % 10}", limits=limits) for i in range(1000)}


def _gang(job_id: int, queue: str, expected: Expected | None = _LENGTH) -> Gang:
    return Gang(job_id=job_id, queue=queue, parts=(Part(1, {}),), expected=expected)


def measure(quick: bool) -> list[Row]:
    """Return the rows of all parts; with `quick`, for a tenth of the jobs and of the passes."""
    share = 10 if quick else 1
    return [
        _admissions(50_000 // share),
        *_long_queue(100_000 // share, passes=200 // share),
        *_owed(50_000 // share, passes=100 // share),
        *_giving_way(16_000 // share, passes=50 // share),
        *_fairness(),
    ]


def _admissions(jobs: int) -> Row:
    world = _World(50_000, _thousand_queues())
    for job_id in range(jobs):
        world.waiting.add(_gang(job_id, f"q{job_id % 1000}"))
    decided, took = world.turn(0.0)
    rate = len(decided.admitted) / took
    return Row(
        f"planner: admissions, {jobs:,} jobs in 1,000 queues",
        f"{rate:,.0f}/s",
        "",
        "",
        "≥ 2,000/s",
        rate >= 2000,
    )


def _long_queue(jobs: int, passes: int) -> Iterator[Row]:
    chance = random.Random(1)
    world = _World(5_000, _thousand_queues())
    lengths = [chance.lognormvariate(8.0, 1.5) for _ in range(jobs)]
    gc.collect()
    tracemalloc.start()
    for job_id, length in enumerate(lengths):
        # As in the service, each job has its own objects in memory for its id, the name of its queue and its
        # expected duration.
        expected = Expected(median=length, high=length * 2)
        world.waiting.add(_gang(job_id + 1_000_000, "q" + str(job_id % 1000), expected))
    used = tracemalloc.get_traced_memory()[0] / len(lengths)
    tracemalloc.stop()
    yield Row("planner: memory of a queued job", f"{used:,.0f} B", "", "", "≤ 1,500 B", used <= 1500)
    while world.turn(0.0)[0].admitted:
        pass
    running = len(world.running)
    took: list[float] = []
    for turn in range(1, passes + 1):
        world.end(chance.choice(list(world.running)))
        took.append(world.turn(float(turn))[1])
    high = _p99(took)
    yield Row(
        f"planner: P99 of a pass after one change, {len(world.waiting):,} queued, {running:,} running",
        f"{high * 1000:,.1f} ms",
        target="≤ 100 ms",
        met=high <= 0.1,
    )


def _owed(jobs: int, passes: int) -> Iterator[Row]:
    """Yield rows with the time of a pass while 500 queues have borrowed the quota of 500 other queues, whose
    jobs wait.

    In the first row, preemption takes the quota back. In the second row, all running jobs are protected.
    """
    for protected, name in ((None, "is taken back"), (0, "cannot be taken back")):
        rules = PreemptionRules(protected=protected)
        queues = {each.name: replace(each, preemption=rules) for each in _thousand_queues().values()}
        world, chance = _World(5_000, queues), random.Random(1)
        for job_id in range(jobs):
            world.waiting.add(_gang(job_id, f"q{job_id % 500}"))
        while world.turn(0.0)[0].admitted:
            pass
        for job_id in range(jobs, 2 * jobs):
            world.waiting.add(_gang(job_id, f"q{500 + job_id % 500}"))
        took: list[float] = []
        for turn in range(1, passes + 1):
            world.end(chance.choice(list(world.running)))
            decided, seconds = world.turn(float(turn))
            for each in decided.preempted:
                world.end(each.job_id)
            took.append(seconds)
        yield Row(
            f"planner: P99 of a pass while lent quota {name}, 500 queues wait for it",
            f"{_p99(took) * 1000:,.1f} ms",
        )


def _giving_way(jobs: int, passes: int) -> Iterator[Row]:
    """Yield rows with the time of a pass before and while a running job is stopped for a waiting one.

    Many jobs run. In the first two rows, the flavor does not list its machines; in the others, it does.
    """
    queues = {"default": Queue(name="default", preemption=PreemptionRules(by_priority=True))}
    for machines in (0, jobs // _JOBS_OF_MACHINE):
        world, chance = _World(jobs, queues, machines), random.Random(1)
        for job_id in range(1, jobs + 1):
            expected = Expected(median=chance.uniform(5e3, 1e5), high=2e5 + job_id)
            nodes = (f"node-{job_id % machines}",) if machines else ()
            gang = _gang(job_id, "default", expected)
            world.running.add(Running(gang, Allocation(flavor="default", nodes=nodes), 0.0))
            world.stakes[job_id] = Stake(attempt=1, saved_at=0.0, startup=10.0)
        for job_id in range(1, 11):
            world.waiting.add(_gang(jobs + job_id, "default"))
        quiet = sorted(world.turn(float(turn))[1] for turn in range(1, passes + 1))
        world.waiting.add(replace(_gang(2 * jobs, "default"), priority=100))
        world.stop([each.job_id for each in world.turn(60.0)[0].preempted], 2 * jobs, 60.0)
        during = sorted(world.turn(60.0 + turn)[1] for turn in range(1, passes + 1))
        on = f" on {machines:,} machines" if machines else ""
        yield Row(f"planner: a pass, {jobs:,} running{on}", f"{quiet[passes // 2] * 1000:,.1f} ms")
        yield Row(
            "planner: … while one of them is stopped for another",
            f"{during[passes // 2] * 1000:,.1f} ms",
            target="≤ 10 ms more",
            met=during[passes // 2] - quiet[passes // 2] <= 0.01,
        )


def _p99(took: list[float]) -> float:
    return sorted(took)[len(took) * 99 // 100]


def _shares(weights: dict[str, float], depth: int) -> dict[str, float]:
    """Return each queue's use of instances in the second half of 300 passes, divided by the queue's weight.

    In each queue, `depth` jobs always wait. A job runs for one to five passes.
    """
    world = _World(40, {name: Queue(name=name, weight=weight) for name, weight in weights.items()})
    got: Counter[str] = Counter()
    job_id, step, turns = 0, 60.0, 300
    for turn in range(turns):
        now = turn * step
        for ended in [
            key for key, run in world.running.items() if (key + turn) % 5 == 0 and run.started_at < now
        ]:
            world.end(ended)
        for name in weights:
            for _ in range(depth - sum(1 for _ in world.waiting.in_order(name))):
                world.waiting.add(_gang(job_id, name))
                job_id += 1
        world.turn(now)
        held = Counter(run.gang.queue for run in world.running.values())
        for name in weights:
            past = world.usage.get(name, Usage(now - step, {}))
            rates = {"default": {"instances": held[name]}}
            world.usage[name] = advanced(past, rates, now, _OPTIONS.half_life)
            got[name] += held[name] if turn > turns // 2 else 0
    return {name: got[name] / weight for name, weight in weights.items()}


def _fairness() -> Iterator[Row]:
    for depth in (_SHALLOW, _DEEP):
        two = _shares({"a": 1.0, "b": 3.0}, depth)
        ratio = two["b"] / two["a"]
        yield Row(
            f"planner: weights 1 and 3, {depth} waiting: share over weight of b to a",
            f"{ratio:.3f}",
            target="0.98 to 1.02",
            met=0.98 <= ratio <= 1.02,
        )
        twenty = list(_shares({f"q{i}": 1.0 + i % 3 for i in range(20)}, depth).values())
        jain = sum(twenty) ** 2 / (len(twenty) * sum(value * value for value in twenty))
        yield Row(
            f"planner: Jain's index of 20 queues, {depth} waiting in each",
            f"{jain:.4f}",
            target="≥ 0.98",
            met=jain >= 0.98,
        )


if __name__ == "__main__":
    run_alone(measure)

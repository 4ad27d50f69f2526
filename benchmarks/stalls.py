"""Measures how soon and how correctly the service finds stalled and slow ranks, its false alarms, and the
cost.

`python -m benchmarks.stalls [PART…] [--count N] [--quick]`. Groups of four train in lockstep. The parts:

- `frozen`, `left-out`, `unseen`: a random rank freezes (SIGSTOP), or leaves out a meeting of all ranks. In
  `unseen`, trainer_kit does not know that the other ranks wait. The deadline for progress is 3 s.
- `default`: `frozen` and `left-out`, N / 20 times each, in jobs that set no deadline for progress. The
  service learns one from the steps; for steps as short as these, it is 30 s.
- `healthy`: uneven steps, long compilations, evaluations and saves; deadline 3 s.
- `slow`, `slow-ddp`: a rank becomes 30 % slower. The others wait for it in the meeting (`slow`, N / 10
  times), or in the backward pass of DDP (`slow-ddp`, N / 30 times).
- `costs`: the costs of a call of `step`, of DDP's hook, of a rank's reports, and of a service with 1,000
  ranks.

N is 100 by default; `unseen` runs N / 5 times. *found*: the time until the service says that no progress was
made for too long. *ended*: the time until the ending of the attempt, with the diagnosis, is written. Both
times run from the stall, which begins at most one step after the last progress.
"""

import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import ModuleType

from rich.progress import Progress

from benchmarks import ddp_rank, stall_costs, stalling_rank
from benchmarks.support import Row, Server, request, run_alone, service, workspace
from training_service._generated import training_service_pb2 as pb

_DEADLINE_SECONDS, _DEFAULT_SECONDS = 3.0, 30.0
_RANKS = 4
_AT_ONCE = 4 * (os.cpu_count() or 1)
_AT_ONCE_IDLE = 8 * (os.cpu_count() or 1)  # jobs at once, if they sleep most of the time
_GIVE_UP_SECONDS = 300.0
_SLOW_FROM, _SLOW_FACTOR, _NAMED_WITHIN = 20, 1.3, 20
_QUIETLY = {"jobs__stop_grace": "1", "logging__level": "INFO"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one job. Times are in seconds from the stall; without a stall, they are 0."""

    stalled: bool
    succeeded: bool
    found: float = 0.0
    ended: float = 0.0
    right: bool = False
    """Whether the diagnosis names the right rank first."""
    stacks: bool = False
    """Whether the log of each rank has its stacks. A frozen rank does not count: it cannot write them."""


def measure(quick: bool) -> list[Row]:
    count = int(sys.argv[sys.argv.index("--count") + 1]) if "--count" in sys.argv else 2 if quick else 100
    parts: dict[str, Callable[[], Iterable[Row]]] = {
        "frozen": lambda: _stalls("frozen", count),
        "left-out": lambda: _stalls("left-out", count),
        "unseen": lambda: _stalls("unseen", -(-count // 5)),
        "default": lambda: _default(-(-count // 20)),
        "healthy": lambda: _healthy(count),
        "slow": lambda: [_slow("slow", stalling_rank, -(-count // 10), 4)],
        "slow-ddp": lambda: [_slow("slow-ddp", ddp_rank, -(-count // 30), 1)],
        "costs": lambda: _costs(quick),
    }
    # The command line of `benchmarks.run` also has names of other benchmarks, which are ignored here.
    wanted = [part for part in parts if part in sys.argv[1:]] or list(parts)
    return [row for part in wanted for row in parts[part]()]


def _costs(quick: bool) -> list[Row]:
    return [
        stall_costs.of_step(),
        stall_costs.of_hook(),
        stall_costs.of_rank(quick),
        stall_costs.of_service(quick),
    ]


def _stalls(kind: str, count: int) -> list[Row]:
    outcomes = _outcomes([kind] * count, _AT_ONCE, _DEADLINE_SECONDS)
    return _rows(f"{kind} rank", outcomes, _DEADLINE_SECONDS)


def _default(count: int) -> list[Row]:
    kinds = ["frozen"] * count + ["left-out"] * count
    outcomes = _outcomes(kinds, _AT_ONCE_IDLE, None)
    return [
        row
        for kind, some in (("frozen", outcomes[:count]), ("left-out", outcomes[count:]))
        for row in _rows(f"{kind} rank, default deadline", some, _DEFAULT_SECONDS)
    ]


def _healthy(count: int) -> list[Row]:
    outcomes = _outcomes(["healthy"] * count, _AT_ONCE_IDLE, _DEADLINE_SECONDS)
    alarms = sum(outcome.stalled for outcome in outcomes)
    ended = sum(outcome.succeeded for outcome in outcomes)
    measured = f"{alarms} of {count} jobs; {ended} succeeded"
    return [Row("stalls: false alarms", measured, target="0", met=alarms == 0 and ended == count)]


def _rows(name: str, outcomes: Sequence[Outcome], deadline: float) -> list[Row]:
    known, count = [outcome for outcome in outcomes if outcome.stalled], len(outcomes)
    right = sum(outcome.right for outcome in outcomes)
    kept = sum(outcome.stacks for outcome in outcomes)
    found = sorted(outcome.found for outcome in known)
    in_time = sum(seconds <= deadline for seconds in found)
    times = _times(found)
    return [
        Row(
            f"stalls: {name}, found",
            f"{len(found)} of {count}, {in_time} in time; {times}",
            target=f"all within {deadline:.0f} s",
            met=in_time == count,
        ),
        Row(f"stalls: {name}, ended", _times(sorted(outcome.ended for outcome in known))),
        Row(f"stalls: {name}, named", f"{right} of {count}", target="≥ 95 %", met=right >= 0.95 * count),
        Row(f"stalls: {name}, stacks kept", f"{kept} of {count}", target="all", met=kept == count),
    ]


def _times(seconds: Sequence[float]) -> str:
    return f"median {statistics.median(seconds):.2f} s, longest {seconds[-1]:.2f} s" if seconds else "-"


def _outcomes(kinds: Sequence[str], at_once: int, deadline: float | None) -> list[Outcome]:
    """Run a job for each of these kinds of faults, `at_once` at a time, in one service.

    Return the outcomes.
    """
    program = [sys.executable, str(Path(stalling_rank.__file__))]
    with (
        workspace() as folder,
        service(folder, command=program, capacity=_RANKS * at_once, **_QUIETLY) as server,
    ):
        one = partial(_one, server, folder, deadline)
        return _side_by_side(f"{kinds[0]}, {at_once} at once", one, kinds, at_once)


def _side_by_side(
    name: str, one: Callable[[int, str], Outcome], kinds: Sequence[str], at_once: int
) -> list[Outcome]:
    with ThreadPoolExecutor(at_once) as pool, Progress() as progress:
        task = progress.add_task(name, total=len(kinds))

        def work(number: int, kind: str) -> Outcome:
            outcome = one(number, kind)
            progress.advance(task)
            return outcome

        return list(pool.map(work, range(len(kinds)), kinds))


def _one(server: Server, folder: Path, deadline: float | None, number: int, kind: str) -> Outcome:
    record = folder / f"record-{number}"
    record.mkdir()
    victim, at = random.randrange(_RANKS), random.randrange(4, 12)
    train = request(
        RECORD=str(record),
        FAULT=kind if kind == "healthy" else f"{kind}:{victim}:{at}",
        PARALLEL_INSTANCES=str(_RANKS),
    )
    if deadline is not None:
        train.deadlines.progress.FromTimedelta(timedelta(seconds=deadline))
    train.retry_policy.max_attempts = 1
    with server.stub() as stub:
        job, ended = stub.Train(train).job_id, 0.0
        for status in stub.WatchTraining(pb.WatchTrainingRequest(job_id=job), timeout=_GIVE_UP_SECONDS):
            if not ended and (status.ending or status.status in (pb.failure, pb.succeed)):
                ended = time.time()
        stalled = status.diagnosis.category == "stalled"
        if kind == "healthy" or not stalled:
            return Outcome(stalled, status.status == pb.succeed)
        logs = [
            "".join(
                piece.text for piece in stub.GetTrainingLogs(pb.GetTrainingLogsRequest(job_id=job, rank=rank))
            )
            for rank in range(_RANKS)
        ]
    live = [rank for rank in range(_RANKS) if kind != "frozen" or rank != victim]
    began = float((record / "stalled").read_text())
    return Outcome(
        stalled,
        succeeded=False,
        found=_found_at(server, job) - began,
        ended=ended - began,
        right=status.diagnosis.summary.startswith(f"Rank {victim} "),
        stacks=all("Thread MainThread" in logs[rank] for rank in live),
    )


def _found_at(server: Server, job: int) -> float:
    """Return the time at which the service found that the job makes no progress, from the service's log."""
    lines = [
        line for line in server.log.read_text().splitlines() if f" job {job}: attempt 1 makes no" in line
    ]
    return datetime.strptime(lines[-1][:23], "%Y-%m-%d %H:%M:%S,%f").timestamp()


def _slow(name: str, program: ModuleType, count: int, at_once: int) -> Row:
    """Return a row with the number of steps from the moment when a rank becomes 30 % slower until it is named
    as slow.
    """
    with (
        workspace() as folder,
        service(
            folder, command=[sys.executable, str(program.__file__)], capacity=_RANKS * at_once, **_QUIETLY
        ) as server,
        ThreadPoolExecutor(at_once) as pool,
        Progress() as progress,
    ):
        made = pool.map(partial(_slow_one, server, folder), range(count))
        after = list(progress.track(made, total=count, description=f"{name}, {at_once} at once"))
    known = sorted(steps for steps in after if steps is not None)
    measured = f"median {statistics.median(known or [0]):.0f}, at most {max(known, default=0):.0f} steps; "
    return Row(
        f"stalls: rank 30 % slower ({name}), named after",
        measured + f"wrong: {count - len(known)} of {count}",
        target=f"≤ {_NAMED_WITHIN} steps",
        met=max(known, default=0) <= _NAMED_WITHIN and len(known) == count,
    )


def _slow_one(server: Server, folder: Path, number: int) -> float | None:
    """Run one job.

    Return the number of steps until the slow rank was named. None: no rank, or a wrong one, was named.
    """
    record = folder / f"record-{number}"
    record.mkdir()
    victim = random.randrange(_RANKS)
    train = request(RECORD=str(record), FAULT=f"slow:{victim}:{_SLOW_FROM}", PARALLEL_INSTANCES=str(_RANKS))
    train.deadlines.progress.FromTimedelta(timedelta(seconds=_DEADLINE_SECONDS))
    with server.stub() as stub:
        job = stub.Train(train).job_id
        named: list[pb.RankStatus] = []
        for status in stub.WatchTraining(pb.WatchTrainingRequest(job_id=job), timeout=_GIVE_UP_SECONDS):
            if named := [rank for rank in status.ranks if rank.pace.HasField("slow_since")]:
                break
        stub.CancelTraining(pb.CancelTrainingRequest(job_id=job))
    mark = record / "stalled"
    if [rank.rank for rank in named] != [victim] or not mark.exists():
        return None
    seconds = named[0].pace.slow_since.ToDatetime(UTC).timestamp() - float(mark.read_text())
    return seconds / (_SLOW_FACTOR * stalling_rank.STEP_SECONDS)


if __name__ == "__main__":
    run_alone(measure)

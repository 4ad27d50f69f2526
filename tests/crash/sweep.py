"""Tries the points where something can happen to the service, each in a fresh world, and counts results."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from tests.crash.calls import INPUT_OUTPUT, NO_SPACE, TOO_MANY
from tests.crash.checks import LOST_LOGS, check_deletion, check_jobs
from tests.crash.faults import KILL_AFTER, KILL_BEFORE, KILLS
from tests.crash.forkserver import ForkServer
from tests.crash.kept import KeptService
from tests.crash.scenario import FAILING, play
from tests.crash.world import World
from tests.support.patience import PATIENCE

LANES = 4

# Errors that may rightly fail a job, with the categories of such failures.
EXCUSED = {
    NO_SPACE: frozenset({"storage_not_writable", "launch_failed", LOST_LOGS}),
    TOO_MANY: frozenset({"launch_failed"}),
    INPUT_OUTPUT: frozenset({"storage_not_writable"}),
}
_CALLS_OF_A_RECOVERY = 40
_BEFORE, _AFTER = 6, 50


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the service to the outside, as recorded in the trace."""

    number: int
    kind: str
    name: str
    offered: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a world whose service met these faults."""

    faults: tuple[str, ...]
    hits: tuple[tuple[Call, str], ...]
    """The calls that were hit, with their faults."""
    problems: tuple[str, ...]
    log: str
    seconds: float

    def __str__(self) -> str:
        hits = "; ".join(f"{what}: call {call.number}, {call.kind} {call.name}" for call, what in self.hits)
        return f"{list(self.faults)} ({hits or 'not reached'}): {'; '.join(self.problems) or 'survived'}"


def trace_of(file: Path) -> tuple[list[Call], list[tuple[Call, str]]]:
    """Read all calls of one start, and the calls that were hit."""
    calls: dict[str, Call] = {}
    hits = []
    for line in file.read_text().splitlines():
        first, *fields = line.split("\t")
        if first == "!":
            hits.append((calls[fields[0]], fields[1]))
        else:
            calls[first] = Call(int(first), fields[0], fields[1], tuple(fields[2].split(",")))
    return list(calls.values()), hits


_PORT_TAKEN = "server.address: cannot listen at"


def try_faults(forks: ForkServer, world: World, faults: Sequence[str]) -> Outcome:
    """Play the scenario with these faults, one for each start, and check the result."""
    begin = time.monotonic()
    world.make()
    problems: list[str] = []
    excused = frozenset[str]().union(
        *(kinds for what, kinds in EXCUSED.items() if any(fault.endswith(what) for fault in faults))
    )
    try:
        with KeptService(forks, world.folder, lambda start: "".join(faults[start : start + 1])) as service:
            ids = play(service, world.jobs, world.evict)
            problems += check_jobs(service, world.jobs, ids, excused, decides=world.decides)
            deleted = ids[world.jobs.index(FAILING)]
            problems += check_deletion(service, deleted, {*ids} - {deleted})
            finish(service, world)
        problems += world.problems()
        if all(fault.endswith(KILLS) for fault in faults) and not {*service.exit_codes} <= {
            0,
            -signal.SIGKILL,
        }:
            problems.append(f"the service ended by itself: {service.exit_codes}")
    except Exception as error:
        problems.append(f"{type(error).__name__}: {error}")
    log = service.log() if problems else ""
    return Outcome(tuple(faults), tuple(hits_in(world)), tuple(problems), log, time.monotonic() - begin)


def hits_in(world: World) -> Iterator[tuple[Call, str]]:
    """Yield the hit calls of all starts, with their faults."""
    for trace in sorted(world.folder.glob("trace-*")):
        yield from trace_of(trace)[1]


def finish(service: KeptService, world: World) -> None:
    """Stop the service in good order. The next service cleans up the leftovers."""
    service.stop()
    if world.is_settled():
        return
    service.start()
    deadline = time.monotonic() + PATIENCE
    while not world.is_settled() and time.monotonic() < deadline:
        time.sleep(0.05)
    service.stop()


def around(calls: Sequence[Call], name: str) -> list[Call]:
    """Return the calls around the first call whose name contains this text."""
    place = next(place for place, call in enumerate(calls) if name in call.name)
    return list(calls[max(0, place - _BEFORE) : place + _AFTER])


def kills(calls: Iterable[Call]) -> list[tuple[str, ...]]:
    """Return a kill before and after each call."""
    return _points(calls, lambda what: what in KILLS)


def errors(calls: Iterable[Call]) -> list[tuple[str, ...]]:
    """Return every error that each call offers."""
    return _points(calls, lambda what: what not in KILLS)


def _points(calls: Iterable[Call], is_wanted: Callable[[str], bool]) -> list[tuple[str, ...]]:
    return [(f"{call.number} {what}",) for call in calls for what in call.offered if is_wanted(what)]


def with_recoveries(tried: Sequence[tuple[str, ...]], seed: int) -> list[tuple[str, ...]]:
    """Return these faults, each followed by a kill during the recovery."""
    dice = random.Random(seed)
    return [
        (*faults, f"{dice.randint(1, _CALLS_OF_A_RECOVERY)} {dice.choice((KILL_BEFORE, KILL_AFTER))}")
        for faults in tried
    ]


class Sweep:
    """Concurrent worlds, one for each lane, until `close`. `worlds` creates a world with a given name."""

    def __init__(self, worlds: Callable[[str], World], lanes: int = LANES) -> None:
        with ExitStack() as made:
            self._worlds = [made.enter_context(closing(worlds(f"lane-{number}"))) for number in range(lanes)]
            self._forks = [made.enter_context(closing(ForkServer(world.wraps))) for world in self._worlds]
            self.close = made.pop_all().close

    def reference(self) -> list[Call]:
        """Return the calls of a service without faults."""
        world = self._worlds[0]
        outcome = try_faults(self._forks[0], world, ())
        assert not outcome.problems, f"{outcome}\n{outcome.log}"
        return trace_of(world.folder / "trace-000")[0]

    def run(
        self, tried: Sequence[tuple[str, ...]], report: Callable[[Outcome], None] = lambda _: None
    ) -> list[Outcome]:
        """Try all faults and return the outcomes. `report` is called with each outcome as it is known."""
        waiting: SimpleQueue[tuple[str, ...]] = SimpleQueue()
        for faults in tried:
            waiting.put(faults)
        with ThreadPoolExecutor(len(self._worlds)) as lanes:
            ends = [lanes.submit(self._lane, number, waiting, report) for number in range(len(self._worlds))]
        return [outcome for end in ends for outcome in end.result()]

    def _lane(
        self, number: int, waiting: "SimpleQueue[tuple[str, ...]]", report: Callable[[Outcome], None]
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        world, forks = self._worlds[number], self._forks[number]
        while True:
            try:
                faults = waiting.get_nowait()
            except Empty:
                return outcomes
            outcome = try_faults(forks, world, faults)
            if not outcome.hits and _PORT_TAKEN in outcome.log:  # another program has taken the port since
                outcome = try_faults(forks, world, faults)
            outcomes.append(outcome)
            report(outcome)


def summary(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield the figures: points tried and survived, by fault and kind of call."""
    tried: Counter[tuple[str, str]] = Counter()
    survived: Counter[tuple[str, str]] = Counter()
    for outcome in outcomes:
        for call, what in outcome.hits[:1]:
            key = ("kill" if what in KILLS else what, call.kind)
            tried[key] += 1
            survived[key] += not outcome.problems
    for (what, kind), number in sorted(tried.items()):
        yield f"{what:24} {kind:8} {survived[what, kind]:5} of {number:5} survived"
    missed = sum(not outcome.hits for outcome in outcomes)
    yield f"{'all':33} {survived.total():5} of {tried.total():5} survived; {missed} were not reached"

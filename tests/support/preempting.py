"""A simulated service that stops running jobs for waiting ones, for tests of the planner."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from job_tracker.scheduling.model import (
    Allocation,
    Expected,
    Flavor,
    Gang,
    GoingOn,
    Part,
    Plan,
    Preempt,
    PreemptionRules,
    Promise,
    Queue,
    Running,
    Snapshot,
    Stake,
)
from job_tracker.scheduling.planner import plan
from job_tracker.scheduling.waiting import WaitingGangs
from tests.support.random_queues import gangs_of, random_state

NOW = 10_000.0
_NONE = -1
"""An id that no job has."""
NO_RULES = PreemptionRules()


def gang(
    job_id: int, queue: str = "a", count: int = 1, *, priority: int = 0, least: int = 0, each: int = 0
) -> Gang:
    resources = {"instances": 1, "gpu": each} if each else {"instances": 1}
    return Gang(
        job_id=job_id,
        queue=queue,
        priority=priority,
        parts=(Part(count, resources),),
        least=least,
        expected=Expected(median=1000.0, high=1000.0),
    )


class World:
    """The waiting and running gangs of a simulation, in which plans are carried out."""

    def __init__(self, *queues: Queue, capacity: int = 8, flavors: Sequence[Flavor] = ()) -> None:
        self.flavors = tuple(flavors) or (Flavor(name="default", capacity={"instances": capacity}),)
        self.queues: Mapping[str, Queue] = {each.name: each for each in queues}
        self.waiting = WaitingGangs()
        self.running: dict[int, Running] = {}
        self.stakes: dict[int, Stake] = {}
        self.promises: dict[int, Promise] = {}
        self.counts: dict[int, int] = {}
        """The number of times that each job was preempted."""
        self.given_way: dict[int, Preempt] = {}
        self.flavor_of: dict[int, str] = {}
        """The flavors of the jobs that were preempted."""
        self.is_open = True
        self.now = NOW

    @staticmethod
    def of(state: Snapshot, chance: random.Random) -> "World":
        """Return a world that begins with this state, with rules and stakes drawn from `chance`."""
        queues = [
            replace(
                queue,
                preemption=PreemptionRules(
                    by_priority=chance.random() < 0.6,
                    reclaim=chance.random() < 0.8,
                    min_runtime=chance.choice([0.0, 0.0, 1e6]),
                    max_preemptions=chance.choice([0, 1, 3, 10]),
                    protected=chance.choice([None, None, 100]),
                    resize_period=chance.choice([0.0, 60.0, 600.0]),
                ),
            )
            for queue in state.queues.values()
        ]
        world = World(*queues, flavors=state.flavors)
        priorities = [-100, 0, 0, 100]
        for each in gangs_of(state):
            world.submit(replace(each, priority=chance.choice(priorities)))
        for run in state.running.values():
            changed = replace(run.gang, priority=chance.choice(priorities))
            world.begin(replace(run, gang=changed, started_at=NOW - chance.uniform(1, 9000)))
            saved = chance.choice([0.0, chance.uniform(0, 9000)])
            world.stake(run.gang.job_id, since=saved, startup=chance.choice([0.0, 60.0]))
        world.is_open = state.is_open
        return world

    def submit(self, *gangs: Gang) -> None:
        for each in gangs:
            self.waiting.add(each)

    def run(self, each: Gang, *, since: float = 100.0, trainers: int = 0, startup: float = 0.0) -> None:
        """Let a gang run. Its last checkpoint was reported `since` seconds ago."""
        self.begin(Running(each, Allocation(trainers=trainers), NOW - 5000.0))
        self.stake(each.job_id, since=since, startup=startup)

    def begin(self, run: Running) -> None:
        self.running[run.gang.job_id] = run
        self.stake(run.gang.job_id, since=0.0)

    def stake(self, job_id: int, *, since: float, startup: float = 0.0) -> None:
        self.stakes[job_id] = Stake(
            attempt=1,
            saved_at=self.now - since,
            startup=startup,
            preemptions=self.counts.get(job_id, 0),
        )

    def snapshot(self) -> Snapshot:
        first = {each.by_job for each in self.given_way.values() if self.waiting.get(each.by_job) is not None}
        going_on = {
            job_id: GoingOn(each.trainers, self.flavor_of[job_id])
            for job_id, each in self.given_way.items()
            if each.trainers and self.waiting.get(job_id) is not None
        }
        return Snapshot(
            flavors=self.flavors,
            queues=self.queues,
            waiting=self.waiting,
            running=self.running,
            promises=self.promises,
            stakes=self.stakes,
            claims=[*sorted(first), *sorted(going_on.keys() - first)],
            going_on=going_on,
            preempted={
                job_id for job_id in (*self.counts, *self.given_way) if self.waiting.get(job_id) is not None
            },
            is_open=self.is_open,
        )

    def decide(self) -> Plan:
        """Return the plan for the present state, and change nothing."""
        return plan(self.snapshot(), self.now)

    def turn(self) -> Plan:
        """Make a plan, start the gangs that it admits, and begin to stop those that it preempts.

        Return the plan.
        """
        decided = self.decide()
        for admit in decided.admitted:
            each = self.waiting.get(admit.job_id)
            assert each is not None
            self.waiting.remove(admit.job_id)
            self.given_way.pop(admit.job_id, None)
            self.given_way = {
                job_id: replace(each, by_job=_NONE) if each.by_job == admit.job_id else each
                for job_id, each in self.given_way.items()
            }
            self.begin(Running(each, admit.allocation, self.now))
        for each_victim in decided.preempted:
            self.given_way[each_victim.job_id] = each_victim
            self.flavor_of[each_victim.job_id] = self.running[each_victim.job_id].allocation.flavor
            stake = self.stakes[each_victim.job_id]
            self.stakes[each_victim.job_id] = replace(
                stake,
                is_leaving=True,
                leaves_for=each_victim.by_job,
                goes_on=each_victim.trainers,
                noticed_at=self.now,
            )
        self.promises = {each.job_id: each.promise for each in decided.reserved}
        return decided

    def leave(self, which: Callable[[int], bool] = lambda _: True) -> None:
        """Let the jobs that are being stopped, and for which `which` is true, return to the queue."""
        for job_id in [job_id for job_id, stake in self.stakes.items() if stake.is_leaving and which(job_id)]:
            self.waiting.add(self.running.pop(job_id).gang)
            del self.stakes[job_id]
            if not self.given_way[job_id].trainers:
                self.counts[job_id] = self.counts.get(job_id, 0) + 1

    def end(self, job_id: int) -> None:
        del self.running[job_id]
        del self.stakes[job_id]
        self.given_way.pop(job_id, None)


def random_world(seed: int) -> World:
    """Return a world with random queues, rules, and running and waiting gangs."""
    return World.of(random_state(seed), random.Random(seed))


def without(world: World, victims: Sequence[Preempt]) -> Snapshot:
    """Return a snapshot in which these victims are gone or smaller, and only the job for which they are
    stopped waits.
    """
    running = dict(world.running)
    for victim in victims:
        run = running.pop(victim.job_id)
        if victim.trainers:
            held = run.allocation.trainers or run.gang.parts[0].count
            nodes = run.allocation.nodes
            kept = nodes[: victim.trainers] + nodes[held:]
            running[victim.job_id] = replace(
                run, allocation=replace(run.allocation, trainers=victim.trainers, nodes=kept)
            )
    preemptor = world.waiting.get(victims[0].by_job)
    assert preemptor is not None
    return replace(
        world.snapshot(), running=running, stakes={}, waiting=WaitingGangs([preemptor]), promises={}
    )

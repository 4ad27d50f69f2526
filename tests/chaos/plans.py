"""The jobs of a run, chosen at random: their behaviour and allowed results."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.hostile import ACTS
from training_service._generated import training_service_pb2 as pb

KINDS = tuple(ACTS)
"""The kinds of hostile jobs."""

_ENDED = frozenset({pb.succeed, pb.failure, pb.cancelled})
_HOSTILE_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Plan:
    """A job to play."""

    name: str
    kind: str
    algorithm: str
    ends: frozenset[int]
    """The allowed final statuses."""
    instances: int = 1
    parameters: Mapping[str, str] = field(default_factory=dict)
    cancel_after: float | None = None
    """The job is cancelled this many seconds after its submission; None: never."""
    exit_code: int = 0

    @property
    def is_hostile(self) -> bool:
        """Return whether the job is hostile. A hostile job may have any result, as long as it ends."""
        return self.algorithm == "hostile"

    @property
    def may_lose_ranks(self) -> bool:
        """Return whether the job kills a rank of its first attempt itself."""
        return self.kind in ("dies once", "elastic")


def acts_of(chosen: Collection[str]) -> list[str]:
    """Return the hostile acts of these kinds or names. Raises ValueError for unknown ones."""
    every = {act for acts in ACTS.values() for act in acts}
    for unknown in set(chosen) - every - set(KINDS):
        raise ValueError(f"unknown kind {unknown}; use {', '.join(KINDS)}, or the names of single acts")
    return [act for kind, acts in ACTS.items() for act in acts if {kind, act} & set(chosen)]


def draw(dice: random.Random, jobs: int, acts: Sequence[str], *, elastic: bool = True) -> list[Plan]:
    """Choose this number of jobs.

    If there are acts, some jobs are hostile. All acts are about equally frequent.
    """
    plans: list[Plan] = []
    waiting: list[str] = []
    for number in range(jobs):
        if acts and dice.random() < _HOSTILE_SHARE:
            if not waiting:
                waiting = dice.sample(acts, len(acts))
            plans.append(_hostile(dice, number, waiting.pop()))
        else:
            plans.append(_honest(dice, number, elastic))
    return plans


def _honest(dice: random.Random, number: int, elastic: bool) -> Plan:
    kinds = {
        "runs": 8,
        "checkpoints": 3,
        "fails": 3,
        "dies once": 2,
        "is cancelled": 3,
        "ignores SIGTERM": 1,
        "perhaps cancelled": 2,
        "elastic": 2 if elastic else 0,
    }
    [kind] = dice.choices(list(kinds), list(kinds.values()))
    instances = dice.choice((1, 1, 1, 2, 2, 3))
    seconds, cancel_after = dice.choice((0.2, 0.5, 1, 2, 3)), dice.uniform(0, 2)
    does, ends, code = "run", {pb.succeed}, 0
    match kind:
        case "checkpoints":
            does = "checkpoint"
        case "fails":
            ends, code = {pb.failure}, 3
        case "dies once":
            does = "die"
        case "is cancelled" | "ignores SIGTERM":
            does, ends = "hold", {pb.cancelled}
        case "perhaps cancelled":
            ends = {pb.succeed, pb.cancelled}
        case "elastic":
            does, instances, seconds = "lose a worker", dice.choice((2, 3)), 0.5
    return Plan(
        name=f"job-{number}",
        kind=kind,
        algorithm="elastic" if kind == "elastic" else "honest",
        ends=frozenset(ends),
        instances=instances,
        parameters={
            "DO": does,
            "SECONDS": str(seconds),
            "EXIT_CODE": str(code),
            "STUBBORN": "yes" if kind == "ignores SIGTERM" else "",
        },
        cancel_after=cancel_after if pb.cancelled in ends else None,
        exit_code=code,
    )


def _hostile(dice: random.Random, number: int, act: str) -> Plan:
    # Some of these jobs end by themselves, but most are cancelled. Their records are read in both cases.
    stays = dice.random() < 0.7
    return Plan(
        name=f"job-{number}",
        kind=act,
        algorithm="hostile",
        ends=_ENDED,
        parameters={"ACT": act, "SECONDS": "1000000" if stays else "0.5"},
        cancel_after=dice.uniform(2, 4),
    )

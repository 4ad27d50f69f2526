"""Decides whether an attempt has stalled, and which process is the cause. Pure functions of reports."""

import re
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.pace import Activity
from job_tracker.reports.ranks import FLOOR_SECONDS, Signs, Watched
from job_tracker.tracking.collectives import behind

STEPS_ALLOWED = 3
"""The time that a step may always take, as a multiple of the usual longest step.

The usual longest step is the median, over the processes, of the longest recent step of each process.
"""
PATIENCE_SECONDS = 540.0
"""An attempt without a deadline may stand still for at least this time, if it is not proven to be stuck.

By PyTorch's default, processes that wait in a collective operation of NCCL fail after ten minutes. The
value is a minute less, so that the service can first name the process for which the others wait. Otherwise,
a waiting process would fail, and would seem to be the cause.
"""
ASIDE_SECONDS = 1800.0
"""The time that an attempt may always spend without progress in a declared phase or before its first steps.

Without a deadline, the attempt may also spend this time after its last step.
"""
BUSY_SECONDS = 86_400.0
"""The longest time without a step while the main thread of a process moves through the program."""
_AFTER_STEP_SECONDS = 1.0
"""The time after a step in which the main thread may still move to the place where it waits. Such a movement
is not a sign of other work.
"""
SLOW, NO_LONGER_SLOW = 1.2, 1.1
"""The bounds of the time that a process needs for its own work, relative to the median process.

A process becomes slow at SLOW times the median, and stays slow until it is below NO_LONGER_SLOW times the
median.
"""
_LINE = re.compile(r":\d+ in ")
_NUMBER = re.compile(r"^process \d+")
_SHOWN_STACKS, _SHOWN_OF_STACK, _SHOWN_OF_RANKS = 5, 2000, 20
_NO_SIGN = "has given no sign"
_IN_COLLECTIVE = "/torch/distributed/"
_ASIDE = re.compile(
    r"/torch/(serialization\.py|_dynamo/|_inductor/|distributed/checkpoint/|jit/)|/safetensors/"
    r"|/numpy/lib/_?npyio|/jax/_src/(compiler|pjit)\.py|/orbax/|/tensorflow/python/(saved_model|checkpoint)/"
)
"""The files whose functions save or compile: the main thread may stay long in such a function."""


@dataclass(frozen=True, slots=True)
class Stall:
    """A time of `seconds` in which no process made progress. Up to `limit` seconds are allowed."""

    seconds: float
    limit: float
    patience: float
    """The limit in seconds that applies until it is proven that the attempt is stuck."""

    @property
    def is_over(self) -> bool:
        """Whether the standstill is so long that the attempt counts as stuck even without a proof."""
        return self.seconds > self.patience


def standstill_of(watched: Watched, now: float) -> Stall | None:
    """Return how long an attempt has stood still, even if only for a moment.

    None: too little is known, or a process has made its last step. Only an attempt whose processes report
    their steps, or whose job has a deadline for progress, can stall.
    """
    signs = watched.signs.values()
    if any(each.last.activity is Activity.DONE for each in signs):
        return None
    if any(process not in watched.signs for process in watched.over):
        return None
    stepping = [each for each in signs if each.last.step is not None]
    if not stepping and watched.deadline is None:
        return None
    moved = max([watched.moved, *(each.moved for each in stepping)])
    seconds = now - moved
    limit = _limit(watched, stepping, moved, now)
    return Stall(seconds, limit, limit if watched.deadline is not None else max(limit, PATIENCE_SECONDS))


def is_stall(still: Stall, watched: Watched, now: float, pause: float) -> bool:
    """Return whether `still`, the standstill of an attempt, is a stall. See `silent` for `pause`.

    A stall is longer than its limit. Without a deadline, there is no stall while all processes are silent.
    A stall is only a suspicion until it is proven (`is_proven`) or lasts longer than its `patience`
    (`Stall.is_over`).
    """
    if still.seconds <= still.limit:
        return False
    # If all processes are silent, their reports probably do not reach the service.
    return watched.deadline is not None or silent(watched, now, pause) != set(watched.signs)


def is_proven(watched: Watched) -> bool:
    """Return whether it is proven that some processes hold up the others.

    There are three such cases. First, a signal or a debugger has stopped a process. Second, some processes
    wait for others, as trainer_kit reports, while no other process is in a function that saves or compiles.
    Third, all processes wait in collective operations, but not in the same operation.
    """
    if any(each.is_stopped for each in watched.outside.values()):
        return True
    signs = watched.signs.values()
    if len({each.last.waiting for each in signs}) == 2:
        busy = [process for process, each in watched.signs.items() if not each.last.waiting]
        return not any(_ASIDE.search(main_thread(watched.stacks_of(process))) for process in busy)
    all_wait = all(
        _waits(each) and any(not operation.done for operation in each.collectives) for each in signs
    )
    return all_wait and len(signs) == len(watched.processes) and bool(_late(watched))


def _waits(signs: Signs) -> bool:
    """Return whether a process waits for others, as trainer_kit reports or as the stacks of the process show.

    The stacks are needed because trainer_kit does not know about collective operations that the program
    itself calls.
    """
    if signs.last.waiting or all(operation.done for operation in signs.collectives):
        return signs.last.waiting
    return _IN_COLLECTIVE in main_thread(signs.stacks).rpartition("\n")[2]


def _limit(watched: Watched, stepping: Sequence[Signs], moved: float, now: float) -> float:
    """Return the allowed seconds without progress. `moved` is the time of the last progress."""
    longest = [each.last.longest_step for each in stepping if each.last.longest_step > 0]
    usual = statistics.median(longest) if longest else 0.0
    limit = max(watched.deadline or FLOOR_SECONDS, STEPS_ALLOWED * usual)
    has_begun = (bool(longest) if watched.signs else watched.has_reported) and not watched.anew
    is_aside = any(each.last.activity is not Activity.TRAINING for each in watched.signs.values())
    # Training that declares no phase after its last step probably saves its model.
    is_aside |= watched.has_all_steps and watched.deadline is None
    active = max((each.active for each in stepping), default=0.0)
    is_busy = now - active <= limit and active - moved > _AFTER_STEP_SECONDS
    if watched.deadline is None and is_busy:
        # The main thread still moves, so the step may just be long. It may be a whole epoch, for example.
        limit = max(limit, min(BUSY_SECONDS, active - moved + limit))
    return limit if has_begun and not is_aside else max(limit, ASIDE_SECONDS)


def silent(watched: Watched, now: float, pause: float) -> set[int]:
    """Return the processes that have stopped reporting. `pause`: the seconds between two of their reports."""
    patience = 2 * pause + 1
    return {process for process, each in watched.signs.items() if now - each.heard > patience}


def missing(watched: Watched, quiet: Collection[int]) -> list[int]:
    """Return the processes for which the others probably wait; an empty list if this is unknown.

    These criteria are tried in order. The first one that distinguishes processes decides:

    - The process is stopped, as seen from outside.
    - The process no longer answers (`quiet`).
    - The process is behind in collective operations.
    - The process has made the fewest steps.
    - The process does not wait for others.
    - The main thread of the process is in another function than most main threads.
    """
    signs = watched.signs
    stopped = sorted(process for process, each in watched.outside.items() if each.is_stopped)
    if 0 < len(stopped) < len(watched.processes):
        return stopped
    if quiet:
        return sorted(quiet) if signs.keys() - quiet else []
    if late := _late(watched):
        return sorted(late)
    steps = {process: each.last.step for process, each in signs.items() if each.last.step is not None}
    if steps and min(steps.values()) < max(steps.values()):
        return sorted(process for process, step in steps.items() if step == min(steps.values()))
    busy = [process for process, each in signs.items() if not _waits(each)]
    if 0 < len(busy) < len(signs):
        return sorted(busy)
    places: dict[str, list[int]] = {}
    seen = (process for process, each in watched.outside.items() if each.stacks)
    stacks = {process: watched.stacks_of(process) for process in {*signs, *seen}}
    for process, each in stacks.items():
        places.setdefault(_LINE.sub("", main_thread(each)), []).append(process)
    most = max(places.values(), key=len, default=[])
    return sorted(set(stacks) - set(most)) if 2 * len(most) > len(stacks) else []


def _late(watched: Watched) -> Mapping[int, str]:
    """Return the processes for which others wait in collective operations, each with an explanation."""
    return behind({process: each.collectives for process, each in watched.signs.items()})


def main_thread(stacks: str) -> str:
    """Return the calls of the main thread, which is the first thread in these stacks."""
    calls: list[str] = []
    for line in stacks.splitlines():
        if line.startswith("Thread ") and calls:
            break
        calls += [line.strip()] if line.startswith("  ") else []
    return "\n".join(calls)


def explained(stall: Stall, watched: Watched, quiet: Collection[int]) -> Diagnosis:
    """Return the diagnosis of a stall, with the stacks of the attempt's processes."""
    guilty = missing(watched, quiet)
    waited = f"the attempt has made no progress for {stall.seconds:.0f} s"
    limit = stall.patience if stall.is_over else stall.limit
    at_most = f"at most {limit:.0f} s were allowed"
    if not guilty:
        summary = f"Training stands still: {waited}; {at_most}."
    else:
        signs = watched.signs.get(guilty[0])
        step = signs.last.step if signs else watched.expected.get(guilty[0])
        outside = watched.outside.get(guilty[0])
        if guilty[0] in quiet:
            what = _NO_SIGN + ("" if step is None else f" since it reported step {step}")
        elif outside is not None and outside.is_stopped:
            what = "does not run"
        else:
            what = "did not arrive where the others wait"
            if step is not None:
                what += f" after step {step}"
            elif signs is not None:  # otherwise the ranks do not report their steps
                what += " before its first step"
            what += f" ({late[guilty[0]]})" if guilty[0] in (late := _late(watched)) else ""
        if outside is not None:
            what += f" ({outside.standing})"
        who = _named(sorted({process // watched.per_rank for process in guilty}))
        where = main_thread(watched.stacks_of(guilty[0])).rpartition("\n")[2]
        stands = f" It stands at {where}." if where else ""
        summary = f"{who} {what}: {waited}; {at_most}.{stands}"
    return Diagnosis(
        category=Category.STALLED,
        summary=summary,
        resolution="The detail shows where each rank stood, and the logs of the ranks have all their "
        "threads. If the training was only slow, declare the phase (`group.phase`), or submit the job with a "
        "longer deadlines.progress.",
        detail=_standing(watched, quiet, guilty),
        retryable=True,
        rank=guilty[0] // watched.per_rank if guilty else None,
    )


def _standing(watched: Watched, quiet: Collection[int], guilty: Collection[int]) -> str:
    """Return a text with the positions of the processes. Those for which others wait (`guilty`) are first."""
    groups: dict[tuple[bool, str, str], list[int]] = {}
    for process in watched.signs.keys() | set(quiet) | watched.outside.keys():
        said, stack = _seen_of(watched, process, is_quiet=process in quiet)
        groups.setdefault((process not in guilty, said, stack), []).append(process)
    word = "Process" if watched.per_rank > 1 else "Rank"
    parts = [
        f"{_named(sorted(members), word)}: {said}" + (f"\n{stack[-_SHOWN_OF_STACK:]}" if stack else "")
        for (_, said, stack), members in sorted(groups.items())
    ]
    if len(parts) > _SHOWN_STACKS:
        parts[_SHOWN_STACKS:] = [f"The others stand at {len(parts) - _SHOWN_STACKS} more places."]
    known = watched.signs.keys() | set(quiet) | watched.outside.keys()
    if absent := sorted(watched.processes - known):
        parts.append(f"{_named(absent, word)}: no report of its own")
    return "\n".join(parts)


def _seen_of(watched: Watched, process: int, *, is_quiet: bool) -> tuple[str, str]:
    """Return a short text about the state of a process, and the calls of its main thread.

    The text is "" if the process has answered and was not inspected from outside.
    """
    stack = main_thread(watched.stacks_of(process))
    if outside := watched.outside.get(process):
        return _without_number(outside.standing), stack
    return (_NO_SIGN, "") if is_quiet else ("", stack or "no stack")


def _without_number(standing: str) -> str:
    """Return the finding without the pid, so that otherwise equal findings are shown together."""
    return _NUMBER.sub("process", standing, count=1)


def _named(numbers: Sequence[int], word: str = "Rank") -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN_OF_RANKS]))
    more = f" and {len(numbers) - _SHOWN_OF_RANKS} more" if len(numbers) > _SHOWN_OF_RANKS else ""
    return f"{word}{_plural(word) if len(numbers) > 1 else ''} {shown}{more}"


def _plural(word: str) -> str:
    return "es" if word.endswith("s") else "s"


def slowness(watched: Watched) -> dict[int, float]:
    """Return the time that each process itself works on a step, divided by the median of all processes.

    Empty if fewer than two training processes have reported the time of their steps.
    """
    own = {
        process: each.last.step_seconds - each.last.waiting_seconds
        for process, each in watched.signs.items()
        if each.last.step_seconds > 0 and each.last.activity is Activity.TRAINING
    }
    if len(own) < 2:
        return {}
    # This is the lower median: if there are two processes, the slow one is compared with the fast one.
    usual = statistics.median_low(own.values())
    return {process: seconds / usual for process, seconds in own.items()} if usual > 0 else {}

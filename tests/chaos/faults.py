"""Faults that are injected into a run from outside, at random moments."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from job_tracker.common.clock import boot_seconds

_NO_TARGET_SECONDS = 0.1
_LONGEST_PAUSE = 0.5
_RECOVERY_SECONDS = 3.0
"""The time after a fault within which every client has found the service again."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An action on the run. `do` returns whether there was a target. Rare faults have a lower weight."""

    name: str
    do: Callable[[random.Random], bool]
    weight: int = 1


@dataclass(slots=True)
class Disturbances:
    """The times at which the service or its dependencies were disturbed, and so may be slow."""

    _spans: list[tuple[float, float | None]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def during(self) -> Iterator[None]:
        """Record a disturbance: the time inside the block, and the recovery."""
        with self._lock:
            place = len(self._spans)
            self._spans.append((boot_seconds(), None))
        try:
            yield
        finally:
            with self._lock:
                self._spans[place] = (self._spans[place][0], boot_seconds() + _RECOVERY_SECONDS)

    def quiet_seconds(self, begin: float, end: float) -> float:
        """Return how much of the time from `begin` to `end` was undisturbed."""
        with self._lock:
            spans = sorted((first, last if last is not None else end) for first, last in self._spans)
        quiet, position = 0.0, begin
        for first, last in spans:
            quiet += max(0.0, min(first, end) - position)
            position = max(position, last)
        return quiet + max(0.0, end - position)


class Pace:
    """Keeps submissions and faults in step, so that all of them happen. Each kind of fault has a share."""

    def __init__(self, jobs: int, faults: Sequence[int], lead: int) -> None:
        """`faults` has the number of each kind. Neither side runs ahead by more than `lead` jobs."""
        self._jobs, self._faults, self._lead = max(1, jobs), faults, lead
        self._submitted, self._done = 0, [0] * len(faults)
        self._changed = threading.Condition()

    def submitted(self, patience: float) -> None:
        """Count a submitted job, and wait up to `patience` seconds if the faults are behind."""
        with self._changed:
            self._submitted += 1
            self._changed.notify_all()
            self._changed.wait_for(self._is_in_step, patience if sum(self._faults) else 0)

    def next_fault(self, kind: int, patience: float) -> bool:
        """Wait until another fault is due, and count it as done. Return False if none is due in time."""
        with self._changed:
            is_due = self._changed.wait_for(lambda: self._is_due(kind), patience)
            self._done[kind] += is_due
            self._changed.notify_all()
            return is_due

    def fault_missed(self, kind: int) -> None:
        """Take back the last fault of this kind, which had no target."""
        with self._changed:
            self._done[kind] -= 1

    def _is_in_step(self) -> bool:
        done = sum(self._done) / max(1, sum(self._faults))
        return self._submitted <= done * self._jobs + self._lead

    def _is_due(self, kind: int) -> bool:
        wanted = self._faults[kind]
        return self._done[kind] < wanted and self._done[kind] / wanted <= self._submitted / self._jobs


class Injector:
    """Injects faults one after the other in a separate thread."""

    def __init__(self, faults: Sequence[Fault], seed: int, pace: Pace, kind: int) -> None:
        """`kind` is the kind of these faults for the pace."""
        self.done: Counter[str] = Counter()
        self.problems: list[str] = []
        self._faults = faults
        self._dice = random.Random(f"{seed} {kind}")
        self._pace = pace
        self._kind = kind
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"faults {kind}", daemon=True)

    def start(self) -> None:
        """Start injecting."""
        self._thread.start()

    def end(self) -> None:
        """Stop injecting, and wait for the fault in progress."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(self._dice.uniform(0, _LONGEST_PAUSE)):
            if not self._pace.next_fault(self._kind, _LONGEST_PAUSE):
                continue
            [fault] = self._dice.choices(self._faults, [fault.weight for fault in self._faults])
            try:
                is_done = fault.do(self._dice)
            except Exception as error:
                self.problems.append(f"{fault.name}: {type(error).__name__}: {error}")
                continue
            if is_done:
                self.done[fault.name] += 1
            else:
                self._pace.fault_missed(self._kind)
                time.sleep(_NO_TARGET_SECONDS)

"""The clients of a run: they submit, cancel and wait by gRPC, and repeat calls without an answer."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from job_tracker.common.clock import boot_seconds
from tests.chaos.faults import Pace
from tests.chaos.plans import Plan
from training_service._generated import training_service_pb2 as pb
from training_service.client import RetryPolicy, TrainingClient
from training_service.client.errors import DeadlineExceeded, TrainingServiceError, Unavailable, WaitTimedOut

T = TypeVar("T")

_NO_ANSWER = (Unavailable, DeadlineExceeded)
_LONGEST_PAUSE = 0.2
_HOSTILE_ATTEMPTS = 2


class Stuck(Exception):
    """The service has made no progress for so long that the run cannot continue."""


@dataclass(slots=True)
class Played:
    """A job and its result."""

    plan: Plan
    submitted_at: float
    """The time of the first try, by the boot clock."""
    job_id: int = 0
    """0 until it is acknowledged."""
    end: pb.GetTrainingStatusResponse | None = None


class Clients:
    """Concurrent lanes. Each brings one job at a time to its end."""

    def __init__(
        self, address: str, plans: Sequence[Plan], seed: int, lanes: int, pace: Pace, patience: float
    ) -> None:
        """`patience` is the number of seconds after which anything counts as stuck."""
        self.client = TrainingClient(address)
        self.played: list[Played] = []
        self.problems: list[str] = []
        self.peeks: Sequence[str] = ()
        """The artifacts of hostile jobs to fetch."""
        self.is_stuck = False
        """True if the run was given up."""
        self.unlogged: list[Played] = []
        """The jobs that succeeded without a log of their master."""
        self.read: list[str] = []
        """The texts that were read from hostile jobs."""
        self.repeats: Counter[str] = Counter()
        """The number of calls without an answer, by error."""
        self._plans = iter(plans)
        self._pace = pace
        self._patience = patience
        self._dice = random.Random(seed)
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._lane, name=f"lane {number}", daemon=True) for number in range(lanes)
        ]

    @property
    def is_running(self) -> bool:
        """Return whether there are jobs that have not ended, and may still end."""
        return any(thread.is_alive() for thread in self._threads)

    def start(self) -> None:
        """Start the lanes."""
        for thread in self._threads:
            thread.start()

    def submit_no_more(self) -> None:
        """Submit no further jobs, but bring the submitted ones to their ends."""
        with self._lock:
            self._plans = iter(())

    def give_up(self, problem: str) -> None:
        """Give up the run."""
        self.problems.append(problem)
        self.is_stuck = True
        self._is_over.set()
        self.submit_no_more()

    def close(self) -> None:
        """Release everything. Lanes that still wait end with an error."""
        self._is_over.set()
        self.submit_no_more()
        self.client.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(self._patience)

    def ask(self, call: Callable[[TrainingClient], T]) -> T:
        """Repeat a call until there is an answer, and return it. Raises Stuck."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return call(self.client)
            except _NO_ANSWER as error:
                self.repeats[type(error).__name__] += 1
                if self._is_over.is_set() or time.monotonic() > deadline:
                    raise Stuck(f"no answer within {self._patience:g} s: {error}") from error

    def submit(self, plan: Plan) -> int:
        """Submit a job until there is an answer. The request key ensures that it is only one job."""
        return self.ask(
            lambda client: client.submit(
                plan.algorithm,
                "1",
                "v1",
                name=plan.name,
                instances=plan.instances,
                parameters=dict(plan.parameters),
                request_key=plan.name,
                retry_policy=RetryPolicy(max_attempts=_HOSTILE_ATTEMPTS) if plan.is_hostile else None,
            )
        )

    def _lane(self) -> None:
        while not self._is_over.is_set():
            with self._lock:
                plan = next(self._plans, None)
                pause = self._dice.uniform(0, _LONGEST_PAUSE)
            if plan is None:
                return
            time.sleep(pause)
            self._pace.submitted(patience=5)
            played = Played(plan, boot_seconds())
            self.played.append(played)
            try:
                self._play(played)
            except Stuck as error:
                if not self._is_over.is_set():
                    self.give_up(
                        f"{plan.name} ({plan.kind}, job {played.job_id or 'not acknowledged'}): {error}"
                    )
            except Exception as error:
                if not self._is_over.is_set():
                    self.problems.append(
                        f"{plan.name} ({plan.kind}, job {played.job_id}): {type(error).__name__}: {error}"
                    )

    def _play(self, played: Played) -> None:
        plan = played.plan
        job = played.job_id = self.submit(plan)
        if plan.cancel_after is not None:
            if plan.is_hostile:
                self._read_all(job, plan.cancel_after)
            else:
                self._is_over.wait(plan.cancel_after)
            self.ask(lambda client: client.cancel(job))
        played.end = self._wait(job)
        if plan.is_hostile:
            self._read_all(job, 0.0)
        else:
            self.problems += self._differences(played, played.end)

    def _wait(self, job: int) -> pb.GetTrainingStatusResponse:
        """Wait for the job to end, and return its status. Raises Stuck if it makes no progress."""
        moves = -1
        while True:
            try:
                return self.ask(lambda client: client.wait(job, timeout=self._patience))
            except WaitTimedOut as error:
                seen = error.status
                if len(seen.moves) == moves or self._is_over.is_set():
                    state = f"{pb.TrainingStatus.Name(seen.status)}{', ending' if seen.ending else ''}"
                    raise Stuck(
                        f"no progress for {self._patience:g} s; the job is {state}: {seen.message}"
                    ) from error
                moves = len(seen.moves)

    def _differences(self, played: Played, end: pb.GetTrainingStatusResponse) -> Iterator[str]:
        """Yield the problems with an honest job: another id when it is submitted again, or a wrong model.
        Record a missing log in `unlogged`.
        """
        plan, job = played.plan, played.job_id
        if self.submit(plan) != job:
            yield f"{plan.name} got another id than {job} when it was submitted again"
        if end.status != pb.succeed:
            return
        log = "".join(piece.text for piece in self.ask(lambda client: list(client.logs(job))))
        if f"rank 0 of job {job}\n" not in log:
            self.unlogged.append(played)
        model = self.ask(lambda client: b"".join(client.fetch(job, "model.txt")))
        if model != f"model of job {job}".encode():
            yield f"the model of job {job} is not what it wrote: {model[:100]!r}"

    def _read_all(self, job: int, seconds: float) -> None:
        """Read everything of a hostile job in a separate thread. An error is a valid answer, too."""
        reader = threading.Thread(target=self._read, args=(job,), name=f"reader of job {job}", daemon=True)
        begin = time.monotonic()
        self._is_over.wait(seconds / 2)  # by then, most hostile acts are done
        reader.start()
        self._is_over.wait(max(0.0, seconds - (time.monotonic() - begin)))
        reader.join(self._patience)
        if reader.is_alive() and not self._is_over.is_set():
            self.problems.append(
                f"reading the output of hostile job {job} takes longer than {self._patience:g} s"
            )

    def _read(self, job: int) -> None:
        reads: Sequence[Callable[[], str]] = (
            lambda: "".join(piece.text for piece in self.client.logs(job, tail_lines=50)),
            lambda: str(self.client.status(job)),
            lambda: str(list(self.client.metrics(job))),
            lambda: " ".join(self._artifacts(job)),
            *(lambda name=name: self._content(job, name) for name in self.peeks),
        )
        for read in reads:
            try:
                self.read.append(read()[: 1 << 20])
            except TrainingServiceError as error:
                self.repeats[f"of a hostile job: {type(error).__name__}"] += 1
            except ValueError:  # the channel was closed
                return

    def _artifacts(self, job: int) -> Iterator[str]:
        for artifact in self.client.artifacts(job).artifacts:
            yield f"{artifact.name} {artifact.uri}"

    def _content(self, job: int, name: str) -> str:
        return f"{name}: {b''.join(self.client.fetch(job, name)).decode(errors='replace')}"

"""A rank of a group that trains in lockstep. It stalls in the way that FAULT says. RECORD is the group's
folder.

The ranks meet at a socket of rank 0 after each step. With FAULT=KIND:RANK:STEP, the rank RANK writes the time
into a file at the step STEP. Then it stops itself (`frozen`), or sleeps instead of going to the meeting
(`left-out`). `unseen` is like `left-out`, but trainer_kit does not know that the other ranks wait. With
`healthy`, steps are uneven, and compilation, evaluations and saves take longer than the deadline. With
`slow:RANK:STEP`, the rank needs 30 % more time for each step, from that step on.
"""

import os
import random
import signal
import socket
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from trainer_kit import steps
from trainer_kit.progress import reporting

STEP_SECONDS = 0.25
"""The time of a step, unless steps are uneven."""
_HEALTHY_STEPS = 40
_PHASE_SECONDS = 5.0


@dataclass(frozen=True)
class Place:
    """The rank of this process, and the size of its group."""

    rank: int
    size: int

    @property
    def is_master(self) -> bool:
        return self.rank == 0


class Meeting:
    """A socket at which the ranks wait for each other."""

    def __init__(self, place: Place, path: str) -> None:
        self._peers: list[socket.socket] = []
        if place.is_master:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(path)
            listener.listen(place.size)
            self._peers = [listener.accept()[0] for _ in range(place.size - 1)]
            return
        while True:
            peer = socket.socket(socket.AF_UNIX)
            try:
                peer.connect(path)
            except OSError:
                peer.close()
                time.sleep(0.05)
            else:
                self._peers = [peer]
                return

    def wait(self, place: Place) -> None:
        """Wait until all ranks have called this method."""
        if place.is_master:
            for peer in self._peers:
                peer.recv(1)
        for peer in self._peers:
            peer.sendall(b".")
        if not place.is_master:
            self._peers[0].recv(1)


def left_out() -> None:
    """Sleep for so long that this rank never arrives at the meeting."""
    time.sleep(10_000)


def main() -> None:
    """Train as one rank of the group."""
    place = Place(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    folder = Path(os.environ["RECORD"])
    kind, _, rest = os.environ["FAULT"].partition(":")
    victim, at = map(int, rest.split(":")) if rest else (-1, 0)
    meeting = Meeting(place, str(folder / "meeting"))
    chance = random.Random(os.environ["RECORD"])
    with reporting(place) as reporter:  # type: ignore[arg-type]  # a group without PyTorch
        if kind == "healthy":
            with steps.OF_PROCESS.phase(steps.COMPILING):
                time.sleep(_PHASE_SECONDS)
        for step in range(1, _HEALTHY_STEPS + 1 if kind == "healthy" else 10_000):
            slow = 1.3 if kind == "slow" and place.rank == victim and step >= at else 1.0
            seconds = chance.uniform(0.02, 0.9) if kind == "healthy" else STEP_SECONDS * slow
            time.sleep(seconds)
            if step == at and place.rank == victim:
                (folder / "stalled").write_text(repr(time.time()))
                if kind == "frozen":
                    os.kill(os.getpid(), signal.SIGSTOP)
                elif kind != "slow":
                    left_out()
            with nullcontext() if kind == "unseen" else steps.OF_PROCESS.waiting():
                meeting.wait(place)
            reporter.report(step=step)
            if kind == "healthy" and step % 13 == 0:
                with steps.OF_PROCESS.phase(
                    (steps.EVALUATION, steps.SAVING, steps.COMPILING)[step // 13 - 1]
                ):
                    time.sleep(_PHASE_SECONDS)
                    meeting.wait(place)


if __name__ == "__main__":
    main()

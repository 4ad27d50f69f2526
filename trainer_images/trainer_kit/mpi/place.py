"""Which part of the group this instance is, as the service tells it."""

from dataclasses import dataclass, field
from typing import Self

from trainer_kit import environment
from trainer_kit.errors import ParameterError
from trainer_kit.meeting import Meeting

MAX_INSTANCES, MAX_SLOTS = 100_000, 1024


@dataclass(frozen=True)
class Place:
    """One instance of a group of them."""

    meeting: Meeting
    token: str = field(repr=False)
    """A secret that the instances share."""
    instances: int
    instance: int
    """Which one this is; 0 is the launcher."""
    slots: int
    """Processes in an instance."""
    launcher_slots: int
    """Processes in instance 0; none if it only launches."""

    @classmethod
    def from_environment(cls) -> Self:
        """Reads the group's variables; raises ParameterError naming the first that is wrong."""
        instances = environment.integer("MPI_INSTANCES", default=1, at_least=1, at_most=MAX_INSTANCES)
        slots = environment.integer("MPI_SLOTS", default=1, at_least=1, at_most=MAX_SLOTS)
        place = cls(
            meeting=Meeting.from_environment(),
            token=environment.text("GROUP_TOKEN"),
            instances=instances,
            instance=environment.integer("MPI_INSTANCE", default=0, at_least=0, at_most=instances - 1),
            slots=slots,
            launcher_slots=environment.integer(
                "MPI_LAUNCHER_SLOTS", default=slots, at_least=0, at_most=MAX_SLOTS
            ),
        )
        if not place.hosts:
            raise ParameterError("MPI_LAUNCHER_SLOTS is 0, and there is no other instance to run processes")
        return place

    @property
    def launches(self) -> bool:
        """Whether this instance runs mpirun."""
        return self.instance == 0

    @property
    def hosts(self) -> dict[int, int]:
        """The instances that run processes, and how many each of them does."""
        slots = {0: self.launcher_slots} | dict.fromkeys(range(1, self.instances), self.slots)
        return {instance: number for instance, number in slots.items() if number}

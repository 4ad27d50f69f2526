"""The place of this instance in its group, read from the environment."""

from dataclasses import dataclass, field
from typing import Self

from trainer_kit import environment
from trainer_kit.errors import ParameterError
from trainer_kit.meeting import Meeting

MAX_INSTANCES, MAX_SLOTS = 100_000, 1024


@dataclass(frozen=True)
class Place:
    """The place of one instance."""

    meeting: Meeting
    token: str = field(repr=False)
    """The secret that the instances share."""
    instances: int
    instance: int
    """The number of this instance; 0 is the launcher."""
    slots: int
    """The number of processes in each instance except instance 0."""
    launcher_slots: int
    """The number of processes in instance 0; 0 if it is only the launcher."""

    @classmethod
    def from_environment(cls) -> Self:
        """Read the group's variables. Raises ParameterError, which names the first invalid one."""
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
            raise ParameterError(
                "MPI_LAUNCHER_SLOTS is 0, but no other instance runs processes: set it to 1 or more, or add "
                "instances"
            )
        return place

    @property
    def launches(self) -> bool:
        """Whether this instance runs mpirun."""
        return self.instance == 0

    @property
    def hosts(self) -> dict[int, int]:
        """The number of processes by instance, for the instances that run any."""
        slots = {0: self.launcher_slots} | dict.fromkeys(range(1, self.instances), self.slots)
        return {instance: number for instance, number in slots.items() if number}

"""The groups and logs of a deleted job, which the leader removes."""

from dataclasses import dataclass

from job_tracker.domain import naming
from job_tracker.domain.group import GroupRef


@dataclass(frozen=True, slots=True)
class Remains:
    """The groups of a deleted job at the backend, and its logs. The leader removes them."""

    job_id: int
    algorithm: str
    home: str
    attempts: int

    @property
    def groups(self) -> list[GroupRef]:
        """Return the groups of all attempts."""
        return [self.group_of(attempt) for attempt in range(1, self.attempts + 1)]

    @property
    def folder(self) -> str:
        """Return the job's path, relative to the root folders of models, checkpoints and logs alike."""
        return naming.job_folder(self.home, self.job_id)

    def group_of(self, attempt: int) -> GroupRef:
        """Return the group of an attempt."""
        name = naming.group_name(self.algorithm, self.job_id, attempt)
        return GroupRef(name, self.job_id, attempt, self.home)

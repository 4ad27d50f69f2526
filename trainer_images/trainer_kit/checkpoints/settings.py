"""The settings of checkpoints, read from the environment."""

from dataclasses import dataclass
from typing import Self

from trainer_kit import environment

_DAY = 86_400


@dataclass(frozen=True)
class Settings:
    """The settings of checkpoints."""

    uri: str | None
    """The folder of the job's checkpoints: any fsspec URI, or a plain path. None: nothing is saved."""
    attempt: int
    every_steps: int | None
    """The maximum number of steps between two checkpoints, or None for no limit."""
    every_seconds: float
    """The maximum number of seconds between two checkpoints."""
    keep: int
    """The number of newest checkpoints to keep."""
    grace: int
    """The maximum number of seconds from SIGTERM to the end of the process, even if it has not saved."""
    weights_only: bool = True
    """Whether to load only types whose loading runs no code. Requests cannot set this."""

    @classmethod
    def from_environment(cls) -> Self:
        """Read the variables. Raises ParameterError, which names an invalid one."""
        steps = environment.integer("CHECKPOINT_EVERY_STEPS", default=0, at_least=0, at_most=10**9)
        return cls(
            uri=environment.text("CHECKPOINT_URI", default="") or None,
            attempt=environment.integer("JOB_ATTEMPT", default=1, at_least=1, at_most=2**31),
            every_steps=steps or None,
            every_seconds=environment.positive_number("CHECKPOINT_EVERY_SECONDS", default=60.0),
            keep=environment.integer("CHECKPOINT_KEEP", default=3, at_least=1, at_most=1000),
            grace=environment.integer("CHECKPOINT_GRACE_SECONDS", default=8, at_least=1, at_most=_DAY),
            weights_only=environment.flag("CHECKPOINT_WEIGHTS_ONLY", default=True),
        )

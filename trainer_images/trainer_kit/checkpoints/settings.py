"""How often checkpoints are saved, and where, as the environment says."""

from dataclasses import dataclass
from typing import Self

from trainer_kit import environment

_DAY = 86_400


@dataclass(frozen=True)
class Settings:
    """What there is to choose."""

    uri: str | None
    """The folder of the job's checkpoints: any fsspec URI, or a plain path. None: nothing is saved."""
    attempt: int
    every_steps: int | None
    """How many steps there are between two checkpoints at most; None: any number."""
    every_seconds: float
    """And how many seconds."""
    keep: int
    """How many of the newest checkpoints are kept."""
    grace: int
    """Seconds from SIGTERM until the process ends in any case, saved or not."""
    weights_only: bool = True
    """Whether only types that run no code are loaded. The service lets no request choose this."""

    @classmethod
    def from_environment(cls) -> Self:
        """Reads the variables; raises ParameterError naming one that is wrong."""
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

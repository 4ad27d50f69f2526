"""Timelines of pipelines: the measured passes of a job, laid out by dependency.

A job writes its measured passes to `FILE`, so the content is checked like any input of a user. Ranks that
share processors take turns, so the times at which passes have run say little about the schedule. Therefore, a
timeline uses only the measured durations: each pass starts as soon as the earlier passes of its rank and the
passes on which it depends are done. These are the dependencies:

* A forward pass depends on the forward pass of its micro-batch in the previous stage.
* A backward pass depends on the forward pass of its micro-batch in the same stage, and on the backward pass
  of its micro-batch in the next stage.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError, model_validator

from job_tracker.common.validation import problems
from training_service.client.errors import ServerError

FILE = "timeline.json"
"""The name of the artifact."""
MOST_BYTES = 4 * 1024 * 1024
MOST_PASSES = 10_000
MOST_RANKS = 128
MOST_STAGES = 10_000
MOST_SECONDS = 1e6

Kind = Literal["forward", "backward"]
Key = tuple[Kind, int, int]
"""A pass: its kind, stage and micro-batch."""

_STRICT = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)
_Micro = Annotated[int, Field(ge=0, lt=10**9)]


class Pass(BaseModel):
    """The pass of one micro-batch through one stage."""

    model_config = _STRICT
    kind: Kind
    stage: Annotated[int, Field(ge=0, lt=MOST_STAGES)]
    micro_batch: _Micro
    seconds: Annotated[float, Field(ge=0, le=MOST_SECONDS)]

    @property
    def key(self) -> Key:
        """The kind, stage and micro-batch of the pass."""
        return self.kind, self.stage, self.micro_batch


_OfRank = Annotated[tuple[Pass, ...], Field(min_length=1, max_length=MOST_PASSES), FailFast()]


class MeasuredPasses(BaseModel):
    """The passes of one step of a pipeline, or of several steps of a pipeline without flushes.

    Ranks, stages and micro-batches count from 0.
    """

    model_config = _STRICT
    schedule: Annotated[str, Field(min_length=1, max_length=50)]
    ranks: Annotated[int, Field(ge=1, le=MOST_RANKS)]
    stages: Annotated[int, Field(ge=1, le=MOST_STAGES)]
    micro_batches: Annotated[int, Field(ge=1, le=MOST_PASSES)]
    """The number of micro-batches of one step."""
    flushed: bool
    """Whether all passes of a step end before the passes of the next step begin."""
    steps: Annotated[int, Field(ge=1, lt=10**9)]
    """The number of steps in which the times were measured."""
    passes: Annotated[tuple[_OfRank, ...], Field(min_length=1, max_length=MOST_RANKS), FailFast()]
    """The passes of each rank, in the order in which the rank ran them."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.passes) != self.ranks:
            raise ValueError(f"passes has {len(self.passes)} lists, but ranks is {self.ranks}")
        if self.stages % self.ranks:
            raise ValueError(f"stages {self.stages} is not a multiple of ranks {self.ranks}")
        keys = [each.key for of_rank in self.passes for each in of_rank]
        if len(keys) > MOST_PASSES:
            raise ValueError(f"passes has {len(keys)} passes; at most {MOST_PASSES} can be drawn")
        if len(set(keys)) < len(keys):
            raise ValueError("passes has one pass twice")
        if outside := [key for key in keys if key[1] >= self.stages]:
            raise ValueError(f"passes has stage {outside[0][1]}, but stages is {self.stages}")
        if self.flushed and (
            len(keys) != 2 * self.stages * self.micro_batches
            or any(micro_batch >= self.micro_batches for _, _, micro_batch in keys)
        ):
            raise ValueError(
                f"passes must have a forward and a backward pass of each of {self.micro_batches} "
                f"micro-batches in each of {self.stages} stages"
            )
        if not any(each.seconds for of_rank in self.passes for each in of_rank):
            raise ValueError("all passes have 0 seconds")
        return self

    @property
    def formula(self) -> float:
        """The share of time in which ranks are idle if all passes of a kind take equally long.

        With k ranks of v stages each, and m micro-batches, it is 1 - 1/k for naive model parallelism, in
        which only one rank works at a time. For other schedules, it is (k-1)/(vm+k-1) with a flush, and 0
        without (Huang et al., "GPipe", 2019; Narayanan et al., "PipeDream", 2019, and "Megatron-LM on GPU
        clusters", 2021).
        """
        if self.schedule == "naive":
            return 1 - 1 / self.ranks
        busy = self.stages // self.ranks * self.micro_batches
        return (self.ranks - 1) / (busy + self.ranks - 1) if self.flushed else 0.0

    @property
    def formula_text(self) -> str:
        """The formula for the idle share (`formula`), as text."""
        if self.schedule == "naive":
            return "1 - 1/k"
        if not self.flushed:
            return "no flush"
        return "(k-1)/(vm+k-1)" if self.stages > self.ranks else "(k-1)/(m+k-1)"


@dataclass(frozen=True, slots=True)
class Box:
    """A pass with its place in the picture: its rank, and its start and end in seconds."""

    rank: int
    kind: Kind
    stage: int
    micro_batch: int
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """Measured passes, each with its place in the picture."""

    measured: MeasuredPasses
    boxes: tuple[Box, ...]
    """The passes, ordered by rank; the passes of a rank are in the order in which the rank ran them."""

    @cached_property
    def end(self) -> float:
        """The end of the last pass, in seconds."""
        return max(box.end for box in self.boxes)

    @property
    def idle(self) -> float:
        """The share of the ranks' time in which they are idle."""
        shares = self.idle_of_ranks
        return sum(shares) / len(shares)

    @property
    def idle_of_ranks(self) -> list[float]:
        """For each rank, the share of the time in which it is idle."""
        first, last = self._counted()
        busy = [0.0] * self.measured.ranks
        for box in self.boxes:
            busy[box.rank] += max(0.0, min(box.end, last) - max(box.start, first))
        # Rounding can make the busy seconds of a rank a little larger than the counted time.
        return [max(0.0, 1 - seconds / (last - first)) for seconds in busy]

    def _counted(self) -> tuple[float, float]:
        """Return the start and the end of the time in which idle time is counted, in seconds.

        With flushes, it is the whole step. Without flushes, the passes are a piece cut from a training run.
        Near the start and the end of the piece, some ranks have no passes, because their passes at that time
        belong to other steps. So the counted time begins when all ranks have begun their first pass, and ends
        when the first rank has ended its last pass. If it would end before it begins, the whole piece counts.
        """
        if not self.measured.flushed:
            ranks = range(self.measured.ranks)
            first = max(min(box.start for box in self.boxes if box.rank == rank) for rank in ranks)
            last = min(max(box.end for box in self.boxes if box.rank == rank) for rank in ranks)
            if first < last:
                return first, last
        return 0.0, self.end

    def as_json(self, job_id: int) -> str:
        """Return one line of JSON."""
        shape = self.measured.model_dump(exclude={"passes"})
        measured = {"idle": self.idle, "idle_formula": self.measured.formula}
        return json.dumps(
            {"job_id": job_id, **shape, **measured, "passes": [asdict(box) for box in self.boxes]}
        )


def read(pieces: Iterable[bytes], name: str = FILE) -> Timeline:
    """Return the timeline of the passes in a file.

    Raises ServerError with the first problem of the file's content.
    """
    content = bytearray()
    for piece in pieces:
        content += piece
        if len(content) > MOST_BYTES:
            raise ServerError(f"{name} has more than {MOST_BYTES} bytes, so it is not a timeline")
    try:
        return laid_out(MeasuredPasses.model_validate_json(bytes(content)))
    except ValidationError as error:
        raise ServerError(f"{name} is not a timeline: {next(problems(error, MeasuredPasses))}") from error
    except ValueError as error:
        raise ServerError(f"{name} is not a timeline: {error}") from error


def laid_out(measured: MeasuredPasses) -> Timeline:
    """Return the timeline in which each pass starts as early as possible.

    Raises ValueError if passes wait for each other in a circle.
    """
    known = {each.key for of_rank in measured.passes for each in of_rank}
    ends: dict[Key, float] = {}
    boxes: list[list[Box]] = [[] for _ in measured.passes]
    clocks = [0.0] * measured.ranks
    while len(ends) < len(known):
        before = len(ends)
        for rank, passes in enumerate(measured.passes):
            while len(boxes[rank]) < len(passes):
                each = passes[len(boxes[rank])]
                needed = [key for key in _needs(each.key, measured.stages) if key in known]
                if any(key not in ends for key in needed):
                    break
                start = max([clocks[rank], *(ends[key] for key in needed)])
                clocks[rank] = ends[each.key] = start + each.seconds
                boxes[rank].append(Box(rank, *each.key, start, clocks[rank]))
        if len(ends) == before:
            raise ValueError("its passes wait for each other: their order is impossible")
    return Timeline(measured, tuple(box for of_rank in boxes for box in of_rank))


def _needs(wanted: Key, stages: int) -> Iterator[Key]:
    kind, stage, micro_batch = wanted
    if kind == "backward":
        yield "forward", stage, micro_batch
        if stage < stages - 1:
            yield "backward", stage + 1, micro_batch
    elif stage > 0:
        yield "forward", stage - 1, micro_batch

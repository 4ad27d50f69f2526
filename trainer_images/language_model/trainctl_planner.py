"""The planner of the language model: an entry point for `trainctl plan`. Needs no PyTorch."""

from typing import Annotated

import typer
from trainer_kit.errors import ParameterError

from language_model import planning
from language_model.choices import Precision
from language_model.layout import Layout


def plan(
    instances: int,
    device_memory: float,
    *,
    layers: Annotated[int, typer.Option(help="Of the model.", min=1, max=10_000)] = 4,
    heads: Annotated[int, typer.Option(help="Of its attention.", min=1, max=10_000)] = 4,
    width: Annotated[int, typer.Option(help="Of its vectors.", min=1, max=1_000_000)] = 64,
    sequence: Annotated[int, typer.Option(help="Tokens of an example.", min=1, max=4095)] = 64,
    batch: Annotated[int, typer.Option(help="Examples of a step, in all.", min=1, max=1_000_000)] = 16,
    precision: Annotated[str, typer.Option(help="fp32 or bf16, of the passes.")] = "fp32",
) -> tuple[list[planning.Choice], planning.Choice | None]:
    """For the algorithm language-model: the first column holds the parameters to submit it with.

    The best is first: what loses least time to waiting and to work done twice, then what sends least.
    """
    try:
        model = Layout(
            world_size=1,
            layers=layers,
            heads=heads,
            width=width,
            context=sequence,
            batch_size=batch,
            precision=Precision(precision),
        )
    except ParameterError as error:
        raise ValueError(str(error)) from error
    found = planning.choices(model, instances, device_memory)
    return found, None if found else planning.least(model, instances)

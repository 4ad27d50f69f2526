"""Shows the decision of `trainctl plan transformer`."""

import json
import shlex
from dataclasses import asdict, dataclass, fields
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from training_service.client.planning import all_reduce, reasons
from training_service.client.planning.cluster import Cluster
from training_service.client.planning.costs import Time, Training
from training_service.client.planning.refusals import refusals
from training_service.client.planning.search import Choice, Decision

_SHOWN = 3


@dataclass(frozen=True)
class Advice:
    """A decision of `trainctl plan transformer`, with its inputs."""

    training: Training
    cluster: Cluster
    decision: Decision
    least_gain: float

    @property
    def reasons(self) -> list[str]:
        """The reasons for the decision. Each has one or two sentences."""
        return list(reasons.reasons(self.training, self.cluster, self.decision, self.least_gain))

    @property
    def note(self) -> str:
        """A note if `language-model` would train a different model or refuse the options; otherwise ""."""
        return " ".join(filter(None, (reasons.differences(self.training.model), *self.refusals)))

    @property
    def refusals(self) -> list[str]:
        """The reasons why `language-model` cannot train with the best layout."""
        return self._refusals(self.decision.best)

    @property
    def shown(self) -> list[Choice]:
        """The best choices on the chosen number of devices, the best one first.

        If the second-best choice (`reasons.runner_up`) has another number of devices, it is added at the end.
        """
        first = list(self.decision.at_best[:_SHOWN])
        other = reasons.runner_up(self.decision)
        return first if other is None or other in first else [*first, other]

    def as_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(
            {
                "verdict": reasons.verdict(self.decision),
                "reasons": self.reasons,
                "note": self.note,
                "model_parameters": self.training.model.parameters,
                "states_bytes": self.training.states_bytes,
                "choices": [self._choice(choice) for choice in self.shown],
                "by_devices": [self._choice(choice) for choice in self.decision.by_devices.values()],
            }
        )

    def parameters_of(self, choice: Choice) -> dict[str, str]:
        """Return the parameters of `language-model` for a choice."""
        chosen = all_reduce.parameters(self.training, self.cluster, choice)
        return {**reasons.parameters(self.training, choice.layout), **chosen}

    def _refusals(self, choice: Choice) -> list[str]:
        return list(refusals(self.training, choice.layout))

    def _choice(self, choice: Choice) -> dict[str, Any]:
        best = self.decision.best
        return {
            "devices": choice.layout.devices,
            "layout": asdict(choice.layout),
            "parameters": self.parameters_of(choice),
            "refusals": self._refusals(choice),
            "memory_bytes": choice.memory,
            "step_seconds": choice.step,
            "seconds": {field.name: getattr(choice.time, field.name) for field in fields(Time)},
            "rejected": None if choice is best else reasons.rejected(best, choice),
        }


def parameters(advice: Advice) -> str:
    """Return the options of `trainctl submit language-model` for the best layout."""
    best = advice.decision.best
    options = advice.parameters_of(best).items()
    words = " ".join(f"-p {shlex.quote(f'{name}={value}')}" for name, value in options)
    return f"--instances {best.layout.devices} {words}"


def text(advice: Advice) -> str:
    """Return the decision as lines: verdict, reasons, choices, note, and the options to copy.

    The columns of a choice are separated by tabs.
    """
    best = advice.decision.best
    rows = ["\t".join((_words(choice), *_figures(choice), _why(best, choice))) for choice in advice.shown]
    return "\n".join(
        (reasons.verdict(advice.decision), *advice.reasons, *rows, *_note(advice), parameters(advice))
    )


def panel(advice: Advice) -> RenderableType:
    """Return the decision as a Rich object."""
    table = Table(box=None, header_style="bold")
    for head in ("layout", "devices", "memory", "step", "communication", "waiting", "why not"):
        table.add_column(head, justify="left" if head in ("layout", "why not") else "right")
    best = advice.decision.best
    for choice in advice.shown:
        table.add_row(_words(choice), *_figures(choice), _why(best, choice))
    verdict = Text(reasons.verdict(advice.decision), style="bold")
    copied = Text(f"trainctl submit language-model {parameters(advice)}", style="dim")
    return Group(
        verdict, *(Text(reason) for reason in advice.reasons), table, *map(Text, _note(advice)), copied
    )


def _note(advice: Advice) -> list[str]:
    return [advice.note] if advice.note else []


def _words(choice: Choice) -> str:
    return reasons.words(choice.layout)


def _figures(choice: Choice) -> tuple[str, ...]:
    time = choice.time
    return (
        str(choice.layout.devices),
        reasons.gigabytes(choice.memory),
        f"{choice.step:.3g} s",
        f"{time.communication / time.step:.0%}",
        f"{time.bubble / time.step:.0%}",
    )


def _why(best: Choice, choice: Choice) -> str:
    return "" if choice is best else reasons.rejected(best, choice)

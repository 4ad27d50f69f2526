"""Two runs of PipeDream's loop in a group. Returns the reports of one, and the error of the other."""

import os
from typing import Any

from language_model import pipedream_loop
from language_model.assembly import assemble
from language_model.layout import Layout
from trainer_kit.errors import TrainingError
from trainer_kit.group import Group
from trainer_kit.progress import Reporter

from tests.support.trainers.layouts import TINY
from tests.support.trainers.programs.parameter_server import Losses
from tests.support.trainers.programs.strategies import blocks


def main(group: Group) -> dict[str, Any]:
    os.environ |= {**TINY, "SCHEDULE": "pipedream", "PIPELINE": str(group.size), "STEPS": "8"}
    sink = Losses()
    returned = _fit(group, sink)
    os.environ["LR"] = "1e38"
    try:
        _fit(group, Losses())
    except TrainingError as error:
        return {"losses": sink.losses, "returned": returned, "error": str(error)}
    raise AssertionError("it should have failed")


def _fit(group: Group, sink: Losses) -> dict[str, float]:
    layout = Layout.from_environment()
    return pipedream_loop.fit(assemble(layout, group), layout, blocks(), group, Reporter(sink))

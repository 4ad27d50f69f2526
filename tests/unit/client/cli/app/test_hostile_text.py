"""Trainctl escapes everything in the service's answers that a terminal would obey."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.message import Message

from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.fake_service import ServerInThread
    from tests.support.trainctl import Trainctl

HOSTILE = "x\x1b]0;pwned\x07\x9d0;pwned\x9c\x9b31m\b\x1b_pwned\u202ey"
# Rich itself moves the cursor with CSI.
OBEYED = re.compile("\x1b[^\\[]|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u202e]")


def with_hostile_text(message: Message) -> None:
    """Put hostile text into all text fields of a message that are in no `oneof`."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type and field.message_type.GetOptions().map_entry:
            key, value = field.message_type.fields
            if value.type == value.TYPE_STRING:
                getattr(message, field.name)[HOSTILE] = HOSTILE
            elif key.type == key.TYPE_STRING and not value.message_type:
                getattr(message, field.name)[HOSTILE] = 1
        elif field.message_type and not field.message_type.full_name.startswith("google.protobuf"):
            inner = getattr(message, field.name)
            with_hostile_text(inner.add() if field.is_repeated else inner)
        elif field.type == field.TYPE_STRING and not field.containing_oneof:
            set_text(message, field)


def set_text(message: Message, field: Any) -> None:
    if field.is_repeated:
        getattr(message, field.name).append(HOSTILE)
    else:
        setattr(message, field.name, HOSTILE)


@pytest.fixture
def hostile(training: ServerInThread) -> ServerInThread:
    """A service whose only job has failed and has hostile text in all fields."""
    status: Any = pb.GetTrainingStatusResponse()
    with_hostile_text(status)
    status.job_id, status.status = 1, pb.failure
    fields = {field.name: value for field, value in status.ListFields() if field.name != "job_id"}
    training.set_job(1, **fields)
    series = pb.MetricSeries(name=HOSTILE)
    for step in (1, 2):
        series.points.add(step=step, value=step)
    training.service.series[1].append(series)
    training.service.files[1][HOSTILE] = b"x"
    return training


COMMANDS = [
    ("status", "1"),
    ("describe", "1"),
    ("list",),
    ("watch", "1"),
    ("wait", "1"),
    ("artifacts", "1"),
    ("plot", "1"),
    ("fetch", "1", "nothing.txt"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_hostile_text_is_escaped(
    hostile: ServerInThread, trainctl: Trainctl, command: tuple[str, ...]
) -> None:
    for run in (trainctl, trainctl.on_terminal):
        result = run(*command)
        shown = result.stdout + result.stderr
        assert "pwned" in shown, "the hostile text is shown in escaped form"
        assert not OBEYED.findall(shown), shown

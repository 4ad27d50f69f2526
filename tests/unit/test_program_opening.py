"""Callers that may run programs of their own, by default and as configured."""

from typing import Any

import pytest

from tests.support.catalog import SETTINGS
from training_service.program_opening import refusal_of


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, ""),
        ({"programs": {"enabled": False}}, "programs.enabled"),
        ({"server": {"address": "0.0.0.0:51001", "insecure": True}}, "callers need not prove who they are"),
        ({"server": {"address": "0.0.0.0:51001", "insecure": True}, "programs": {"enabled": True}}, ""),
        (
            {"server": {"address": "0.0.0.0:51001", "insecure": True}, "auth": {"loopback": "token"}},
            "",
        ),
        ({"backend": "docker"}, ""),
        (
            {"backend": "kubernetes", "programs": {"enabled": True}},
            "reports.address, which is not set",
        ),
        ({"backend": "kubernetes", "reports": {"address": "training-service:51002"}}, ""),
    ],
)
def test_programs_run_where_callers_are_known_or_on_this_machine(values: dict[str, Any], reason: str) -> None:
    refusal = refusal_of(SETTINGS(**{"algorithms": {}, **values}))
    assert reason in refusal
    assert bool(refusal) == bool(reason)

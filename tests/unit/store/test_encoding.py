"""Values that stores leave out of a job are read back unchanged, also by later versions."""

from dataclasses import MISSING, fields
from datetime import timedelta
from typing import Any

import pytest

from job_tracker.domain.allocation import Allocation
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.eviction import Eviction
from job_tracker.domain.group import GroupSpec, InstanceOptions, InstanceSpec, Phase, RankStatus, Toleration
from job_tracker.domain.job import Ending, JobState, Move, Preemption
from job_tracker.domain.job_spec import JobSpec, Program, ProgramChanges
from job_tracker.domain.pace import RankPace
from job_tracker.domain.policies import Deadlines, Elastic, NumberPolicy, RetryPolicy
from job_tracker.domain.progress import Nonfinite, Progress, Saves
from job_tracker.domain.telemetry import Artifact
from job_tracker.store.encoding import MOVES, RANKS, text_of
from job_tracker.store.specs import dumped, loaded
from tests.support.jobs import NOON, spec

_OPTIONS: dict[str, Any] = {
    "resources": {},
    "nproc_per_node": None,
    "node_selector": {},
    "tolerations": (),
    "priority_class": None,
    "labels": {},
    "annotations": {},
    "placement": None,
}

# The released defaults. Stored jobs lack them, so add to this table, but change nothing.
RELEASED: dict[type, dict[str, Any]] = {
    JobSpec: {
        "pod_options": InstanceOptions(),
        "code_version": "",
        "algorithm_version": 0,
        "dataset_declaration": 0,
        "retry": RetryPolicy(),
        "deadlines": Deadlines(),
        "numbers": NumberPolicy(),
        "home": "",
        "project": "default",
        "submitted_by": "",
        "program": None,
        "queue": "default",
        "priority": 0,
        "expected": None,
        "flavor": "",
    },
    Program: {
        "environment": {},
        "requirements": "",
        "python_environment": "",
        "image": "",
        "changes": None,
    },
    ProgramChanges: {"added": 0, "removed": 0},
    GroupSpec: {
        "backend": "",
        "framework": "pytorch",
        "trainers": InstanceSpec(),
        "others": {},
        "environment": {},
        "elastic": None,
        "ends_with_master": False,
        "max_lost": 0,
    },
    InstanceOptions: _OPTIONS,
    InstanceSpec: {
        **_OPTIONS,
        "image": "",
        "command": (),
        "engine": "",
        "beside": {},
    },
    Toleration: {
        "key": None,
        "operator": "Equal",
        "value": "",
        "effect": None,
        "toleration_seconds": None,
    },
    Allocation: {"flavor": "default", "trainers": 0, "nodes": ()},
    RetryPolicy: {
        "max_attempts": 1,
        "backoff": timedelta(seconds=10),
        "max_backoff": timedelta(minutes=10),
        "retry_on": (),
    },
    NumberPolicy: {"on_nonfinite": "flag", "metrics": ("*loss*",)},
    Deadlines: {"queue": None, "start": None, "run": None, "progress": None},
    Elastic: {"max_restarts": 10},
    RankStatus: {"exit_code": None, "note": "", "restarts": 0, "is_gated": False},
    Ending: {"diagnosis": None, "at_once": False, "has_model": None, "preemption": None, "eviction": None},
    Diagnosis: {"detail": "", "retryable": False, "rank": None, "cause": ""},
    Move: {
        "diagnosis": None,
        "note": "",
        "preemption": None,
        "saved": None,
        "saves": Saves(),
        "eviction": None,
    },
    Preemption: {"by_attempt": 0, "by_project": "", "trainers": 0, "flavor": ""},
    Eviction: {"rank": 0, "machine": "", "detail": ""},
    Progress: {
        "step": 0,
        "total_steps": 0,
        "epoch": 0,
        "total_epochs": 0,
        "metrics": {},
        "reported_at": None,
        "speed": 0.0,
        "measured_at": None,
        "measured_step": 0,
        "nonfinite": (),
        "ranks": (),
        "first_step_at": None,
        "saved": None,
        "saves": Saves(),
    },
    Saves: {"count": 0, "some": ()},
    RankPace: {
        "step": None,
        "activity": "training",
        "heard_at": None,
        "step_seconds": 0.0,
        "waiting_seconds": 0.0,
        "slowness": 0.0,
        "slow_since": None,
        "stack": "",
    },
    Nonfinite: {"rank": None},
    Artifact: {"kind": "", "size": 0, "sha256": "", "attempt": 0, "at": None},
}


@pytest.mark.parametrize("kept", RELEASED, ids=lambda kept: kept.__name__)
def test_released_defaults_do_not_change(kept: type) -> None:
    defaults = {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(kept)
    }
    assert {name: defaults[name] for name in RELEASED[kept]} == RELEASED[kept]


def test_the_table_has_every_field_with_a_default() -> None:
    for kept, released in RELEASED.items():
        optional = {
            field.name
            for field in fields(kept)
            if field.default is not MISSING or field.default_factory is not MISSING
        }
        assert optional == set(released), kept


def test_default_values_are_not_written() -> None:
    assert text_of(RANKS, (RankStatus(0, Phase.RUNNING),)) == '[{"rank":0,"phase":"running"}]'
    moves = (Move(JobState.QUEUED, NOON, 0),)
    assert text_of(MOVES, moves) == '[{"state":"queued","at":"2026-11-21T12:00:00Z","attempt":0}]'
    assert "retry" not in dumped(spec())


def test_other_values_are_written_and_read_back() -> None:
    wanted = spec(
        retry=RetryPolicy(max_attempts=3, retry_on=(Category.CRASHED,)),
        elastic=Elastic(min_instances=2),
        roles={"master": 1, "ps": 2},
        pod_options={"labels": {"team": ""}, "tolerations": []},
    )
    text = dumped(wanted)
    assert loaded(text) == wanted
    assert '"retry":{"max_attempts":3,"retry_on":["crashed"]}' in text

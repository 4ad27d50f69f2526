"""Names that only configuration may set."""

import json

import pytest
from pydantic import ValidationError

from job_tracker.catalog import Algorithm
from job_tracker.catalog.parameters import Parameter
from job_tracker.domain.errors import InvalidField

TRUST = {"CHECKPOINT_WEIGHTS_ONLY": "false"}


def test_a_request_cannot_allow_checkpoints_to_run_code() -> None:
    for environment in ({}, TRUST):
        with pytest.raises(InvalidField, match="the algorithm has no such parameter"):
            Algorithm(environment=environment).resolve(TRUST)
        passed = Algorithm(environment=environment, free_parameters=True).resolve(TRUST)
        assert passed == {"TRAINING_PARAMETERS": json.dumps(TRUST)}


def test_an_algorithm_can_allow_it_but_not_declare_it_as_a_parameter() -> None:
    assert Algorithm(environment=TRUST).environment == TRUST
    with pytest.raises(ValidationError, match="'CHECKPOINT_WEIGHTS_ONLY' is a reserved name"):
        Algorithm(parameters={name: Parameter() for name in TRUST})

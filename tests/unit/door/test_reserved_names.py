"""Names that only the configuration of an algorithm may give to its processes."""

import pytest
from pydantic import ValidationError

from job_tracker.catalog import Algorithm
from job_tracker.catalog.parameters import Parameter
from job_tracker.errors import InvalidField

TRUST = {"CHECKPOINT_WEIGHTS_ONLY": "false"}


@pytest.mark.parametrize("other_parameters", [False, True])
def test_a_request_cannot_choose_that_checkpoints_may_run_code(other_parameters: bool) -> None:
    for environment in ({}, TRUST):
        algorithm = Algorithm(environment=environment, other_parameters=other_parameters)
        with pytest.raises(InvalidField, match="is a reserved name"):
            algorithm.resolve(TRUST)


def test_an_algorithm_can_choose_it_but_not_leave_it_to_requests() -> None:
    assert Algorithm(environment=TRUST).environment == TRUST
    with pytest.raises(ValidationError, match="'CHECKPOINT_WEIGHTS_ONLY' is a reserved name"):
        Algorithm(parameters={name: Parameter() for name in TRUST})

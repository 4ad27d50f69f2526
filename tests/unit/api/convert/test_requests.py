"""Requests that repeat a job."""

import json
from dataclasses import replace

from job_tracker.domain.job import new_job
from tests.support.jobs import NOON, spec
from training_service.api.convert.requests import request_for


def test_a_request_that_repeats_a_job_has_each_undeclared_parameter_once() -> None:
    sent = {"LR": "0.1", "DEPTH": "3"}
    variables = {"LR": "0.1", "EPOCHS": "2", "TRAINING_PARAMETERS": json.dumps({"DEPTH": "3"})}
    job = new_job(1, replace(spec(), parameters=sent, environment=variables), NOON)
    assert request_for(job).metadata.parameters == {"LR": "0.1", "EPOCHS": "2", "DEPTH": "3"}

"""The deadline for progress: the request's, that of the algorithm, or that of the configuration."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
from pydantic import ValidationError

from job_tracker.admission.admission import Admission, JobRequest
from job_tracker.catalog import FixedCatalog, JobDefaults
from job_tracker.domain.caller import BUILT_IN
from job_tracker.domain.policies import Deadlines
from tests.support.catalog import ALGORITHM, pod_resolver

RECIPE = {"dataset": False, "kubernetes": {"image": "i:1", "command": ["c"]}}


@pytest.mark.parametrize(
    ("sent", "of_algorithm", "expected"),
    [
        ({}, None, timedelta(minutes=1)),
        ({}, "PT5M", timedelta(minutes=5)),
        ({}, 90, timedelta(seconds=90)),
        ({}, 0, None),  # learned, even if the configuration has one
        ({"progress": 20.0}, "PT5M", timedelta(seconds=20)),
        ({"progress": 0.0}, "PT5M", None),
        ({"run": 20.0}, "PT5M", timedelta(minutes=5)),
    ],
)
async def test_the_request_comes_before_the_algorithm_and_that_before_the_configuration(
    sent: Mapping[str, float], of_algorithm: str | int | None, expected: timedelta | None
) -> None:
    values = RECIPE if of_algorithm is None else {**RECIPE, "progress_deadline": of_algorithm}
    algorithms = {"a": ALGORITHM.model_validate(values)}
    admission = Admission(
        FixedCatalog(algorithms, {}),
        pod_resolver(algorithms),
        capacity=8,
        max_processes=64,
        models_uri="/models",
        checkpoints_uri="/checkpoints",
        defaults=JobDefaults(deadlines=Deadlines(progress=timedelta(minutes=1))),
    )
    request = JobRequest(algorithm="a", dataset_id="", dataset_version="", parameters={}, deadlines=sent)
    spec = await admission.check(BUILT_IN, request)
    assert spec.deadlines.progress == expected


@pytest.mark.parametrize("wrong", [-1, "P11Y", "soon"])
def test_an_impossible_deadline_of_an_algorithm_is_refused(wrong: int | str) -> None:
    with pytest.raises(ValidationError, match="progress_deadline"):
        ALGORITHM.model_validate({**RECIPE, "progress_deadline": wrong})

"""The walk of a parameter: each layer has the value that the page shows."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf.json_format import ParseDict

from job_tracker.admission.admission import Admission, JobRequest
from job_tracker.backends.kubernetes.plan import plan
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.catalog import FixedCatalog
from job_tracker.catalog.groups import Composition
from job_tracker.domain.caller import BUILT_IN
from job_tracker.domain.group import GroupSpec, InstanceOptions, InstanceSpec
from job_tracker.store import specs
from tests.support.catalog import SETTINGS, wait_for_datasets
from tests.support.jobs import job_of
from training_service._generated.training_service_pb2 import PodOptions, TrainRequest
from training_service.api.convert.requests import request_of
from training_service.client import requests
from training_service.job_opening import make_resolver
from training_service.settings import Settings
from training_service.settings.shipped import default_datasets

PAGE = (Path(__file__).parents[3] / "docs" / "walkthrough.md").read_text()
WORDS = {each.__name__: each for each in (JobRequest, Composition, InstanceOptions, GroupSpec, InstanceSpec)}


def shown(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def settings() -> Settings:
    [text] = shown("toml")
    made: Settings = SETTINGS(**tomllib.loads(text))
    return made


def request() -> TrainRequest:
    return requests.train(
        "intent-classification",
        "1",
        "v1",
        name="",
        parameters={"LR": "0.1"},
        instances=3,
        output_model_name="",
        request_key="",
        pod_options=PodOptions(resources={"cpu": "2"}),
        retry_policy=None,
        deadlines=None,
    )


async def test_each_floor_has_the_value_that_is_shown(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_datasets(monkeypatch)
    configured, message = settings(), request()
    shown_message, shown_spec = map(json.loads, shown("json"))
    message.request_key = ""
    assert ParseDict(shown_message, TrainRequest()) == message

    asked = request_of(message)
    algorithm = configured.algorithms[asked.algorithm]
    limits = configured.plugin.limits
    assert limits is not None
    admission = Admission(
        catalog := FixedCatalog(configured.algorithms, default_datasets(str(storage))),
        make_resolver(configured, catalog),
        capacity=8,
        max_processes=64,
        models_uri="/storage/models",
        checkpoints_uri="/storage/checkpoints",
    )
    spec = await admission.check(BUILT_IN, asked)
    assert [eval(each, WORDS) for each in shown("python")] == [
        asked,
        algorithm.resolve(asked.parameters),
        algorithm.composer.compose(asked.parameters, capacity=8),
        limits.check(asked.pod_options),
        spec.group,
    ]
    assert_holds(json.loads(specs.dumped(spec)), shown_spec)

    [shown_pod] = map(yaml.safe_load, shown("yaml"))
    kubernetes: KubernetesSettings = getattr(configured, configured.backend)
    assert_holds(plan(job_of(spec), kubernetes).pods[1], shown_pod)


def assert_holds(whole: Any, part: Any) -> None:
    """Fail unless `whole` contains everything in `part`."""
    match part:
        case dict():
            for key, value in part.items():
                assert_holds(whole[key], value)
        case [{"name": _}, *_]:
            named = {each["name"]: each for each in whole}
            for each in part:
                assert_holds(named[each["name"]], each)
        case _:
            assert whole == part

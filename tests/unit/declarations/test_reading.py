"""Definitions that callers send."""

import json
from typing import Any

import pytest

from job_tracker.declarations.reading import Reader, canonical, check_images
from job_tracker.domain.declaration import LARGEST_DEFINITION
from job_tracker.domain.errors import Forbidden, InvalidField
from tests.support.catalog import ALGORITHM, SETTINGS, algorithm_of

URI = "/data/sets/{dataset_id}/{version}"
PROCESS = {"process": {"command": ["train"]}}


def reader(refusal: str = "") -> Reader:
    return Reader(
        algorithm_model=ALGORITHM,
        check_algorithm=SETTINGS().check_algorithm,
        refusal=refusal,
        dataset_uris=("/data/sets", "s3://bucket/"),
    )


def refused_algorithm(definition: Any) -> str:
    text = definition if isinstance(definition, str) else json.dumps(definition)
    with pytest.raises(InvalidField) as caught:
        reader().algorithm(text)
    assert len(str(caught.value)) < 2048
    return str(caught.value)


def refused_dataset(**definition: Any) -> str:
    with pytest.raises(InvalidField) as caught:
        reader().dataset(json.dumps(definition))
    return str(caught.value)


def test_an_algorithm_has_the_fields_of_the_configuration() -> None:
    values = {
        **PROCESS,
        "parameters": {"LR": {"type": "float", "default": "0.1"}},
        "environment": {"MODE": "a"},
        "description": "two\nlines",
    }
    assert reader().algorithm(json.dumps(values)) == algorithm_of(**values)


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("[]", "definition: it is not a JSON object"),
        ("{", "definition: it is not a JSON object: "),
        ("[" * 20_000, "nested too deeply"),
        ('{"a":' + "[" * 100 + "]" * 100 + "}", "nested too deeply"),
        ('{"a": 1, "a": 2}', "a name occurs twice"),
        ('{"max_instances": NaN}', "NaN is not allowed in JSON; use a finite number"),
        (" " * (LARGEST_DEFINITION + 1), f"has {LARGEST_DEFINITION + 1} bytes; at most"),
        ({**PROCESS, "colour": "red"}, "definition.colour: unknown name; allowed: "),
        ({**PROCESS, "max_instances": "many"}, "definition.max_instances: "),
        ({**PROCESS, "description": "a\x1b[2J"}, "use printable characters"),
        ({**PROCESS, "environment": {"A": "a\u202eb"}}, "use printable characters"),
        ({**PROCESS, "environment": {"A": "\ud800"}}, "use printable characters"),
        ({**PROCESS, "parameters": {f"P{n}": {} for n in range(257)}}, "has 257 entries; at most 256"),
        ({**PROCESS, "parameters": {"LD_PRELOAD": {}}}, "definition.parameters.LD_PRELOAD: "),
        (
            {**PROCESS, "environment": {"LD_PRELOAD": "x"}},
            "definition.environment.LD_PRELOAD: the name",
        ),
        ({**PROCESS, "environment": {"RANK": "0"}}, "definition.environment.RANK: the name is reserved"),
        ({**PROCESS, "check": ["true"]}, "definition.check: not allowed: programs that the service itself"),
        (
            {"process": {"command": ["a"], "virtual_environment": "/x"}},
            "process.virtual_environment: not",
        ),
        (
            {"kubernetes": {"image": "a:1", "service_account": "x"}},
            "kubernetes.service_account: not",
        ),
        ({"kubernetes": {"image": "a:1", "pod_template": {}}}, "definition.kubernetes.pod_template: not"),
        (
            {"docker": {"image": "a:1", "volumes": []}},
            "definition.docker.volumes: not allowed through the API",
        ),
        (
            {**PROCESS, "roles": {"ps": {"docker": {"volumes": []}}}},
            "definition.roles.ps.docker.volumes",
        ),
        ({"process": {"command": ["train", "{X}"]}}, "process.command: argument 1"),
        ({"process": "train"}, "definition.process: "),
        ({"docker": {"image": "a:1"}}, "definition: process.command is missing; backend process needs it"),
    ],
)
def test_a_bad_algorithm_is_refused_with_the_field(definition: Any, message: str) -> None:
    assert message in refused_algorithm(definition)


def test_a_service_that_takes_no_code_refuses_algorithms_and_not_datasets() -> None:
    with pytest.raises(Forbidden, match="no code"):
        reader("no code").algorithm(json.dumps(PROCESS))
    assert reader("no code").dataset(json.dumps({"uri": URI})).uri == URI


def test_the_stored_form_keeps_the_order_of_parameters() -> None:
    assert canonical('{ "b": 1, "a":"\\u00e9"}') == '{"b":1,"a":"é"}'


@pytest.mark.parametrize("uri", [URI, "s3://bucket/x/{version}", "/data/sets/fixed"])
def test_a_dataset_is_in_an_allowed_folder(uri: str) -> None:
    assert reader().dataset(json.dumps({"uri": uri, "files": ["a/b.csv"]})).uri == uri


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ({}, "definition.uri: a value is required"),
        ({"uri": "/etc/{version}"}, "is not allowed; allowed: folders in /data/sets/, s3://bucket/"),
        ({"uri": "/data/sets2/{version}"}, "allowed: folders in"),
        ({"uri": "s3://bucket2/x"}, "allowed: folders in"),
        ({"uri": "/data/sets/../../etc"}, "allowed: folders in"),
        ({"uri": "/data/sets/x::http://a"}, "allowed: folders in"),
        ({"uri": "s3://bucket/%2e%2E/x"}, "allowed: folders in"),
        ({"uri": "s3://bucket/..%2Fx"}, "allowed: folders in"),
        ({"uri": "s3://bucket/%252e%252e/x"}, "allowed: folders in"),
        ({"uri": "/data/sets/a\nb"}, "definition.uri: '/data/sets/a\\nb' is not allowed: it contains"),
        ({"uri": "/data/sets/" + "x" * 1024}, "definition.uri: has 1035 characters; at most 1024"),
        ({"uri": URI, "files": ["a\nb"]}, "definition.files: 'a\\nb' is not allowed"),
        ({"uri": "/data/sets/{version.__class__}"}, "only {dataset_id} and {version} can be filled in"),
        ({"uri": "/data/sets/{version:>9999}"}, "only {dataset_id} and {version} can be filled in"),
        ({"uri": "/data/sets/{other}"}, "definition: uri: "),
        ({"uri": URI, "files": ["../x"]}, "definition.files: '../x' is not allowed"),
        ({"uri": URI, "files": ["/etc/passwd"]}, "definition.files: "),
        ({"uri": URI, "files": ["x"] * 101}, "has 101 entries; at most 100"),
        ({"uri": URI, "size": 3}, "definition.size: unknown name; allowed: uri, files"),
    ],
)
def test_a_bad_dataset_is_refused_with_the_field(definition: dict[str, Any], message: str) -> None:
    assert message in refused_dataset(**definition)


def test_a_project_runs_only_images_that_operators_use() -> None:
    algorithm = algorithm_of(docker={"image": "a:1"}, kubernetes={"image": "b:1"})
    check_images(algorithm, {"a:1", "b:1"})
    with pytest.raises(
        InvalidField, match=r"^definition\.kubernetes\.image: 'b:1' is not allowed in a project"
    ):
        check_images(algorithm, {"a:1"})

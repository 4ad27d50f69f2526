"""Every accepted job becomes objects that are valid in all versions of Kubernetes."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import ValidationError
from pydantic import TypeAdapter

from job_tracker.backends.kubernetes.labels import group_of, rank_of
from job_tracker.backends.kubernetes.options import PodOptions
from job_tracker.backends.kubernetes.plan import KubernetesPlan
from job_tracker.catalog import Entry, Parameter, RequestLimits
from job_tracker.catalog.groups import Composition
from job_tracker.catalog.request_limits import PodOptionName
from job_tracker.domain.errors import InvalidField
from job_tracker.domain.group import InstanceOptions, Place
from job_tracker.frameworks.reserved_names import is_reserved
from tests.support import schemas
from tests.support.catalog import pod_resolver
from tests.support.jobs import job_of, spec
from tests.support.kubernetes_plans import (
    FOR_ALL,
    GOLDEN,
    OF_ALGORITHM,
    algorithm,
    objects_of,
    planned,
    training_of,
)

DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
OPTIONS = TypeAdapter(InstanceOptions)
ONE = Composition({"master": 1}, None, ends_with_master=False)
ANY_REQUEST = RequestLimits(
    allowed_request_options=frozenset(get_args(PodOptionName)),
    allowed_key_prefixes=("example.com",),
)

NAMES = st.one_of(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True), st.text(max_size=5))
KEYS = st.one_of(NAMES, NAMES.map("example.com/{}".format), NAMES.map("kubernetes.io/{}".format))
QUANTITIES = st.one_of(
    st.integers(1, 64), st.sampled_from(["500m", "0.5", "1.5Gi", "4Gi", "2e3", "0", "-1", "1Q", "9E"])
)
POD_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "resources": st.dictionaries(
            st.sampled_from(["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "hugepages-2Mi", "gpu"]),
            QUANTITIES,
            max_size=3,
        ),
        "nproc_per_node": st.integers(0, 9),
        "node_selector": st.dictionaries(KEYS, NAMES, max_size=2),
        "priority_class": NAMES.map(str.lower),
        "labels": st.dictionaries(KEYS, NAMES, max_size=2),
        "annotations": st.dictionaries(KEYS, st.text(max_size=50), max_size=2),
        "placement": st.fixed_dictionaries(
            {},
            optional={
                "near": st.sampled_from([Place.MACHINE, Place.ZONE]),
                "apart": st.sampled_from([Place.MACHINE, Place.ZONE]),
                "strict": st.booleans(),
            },
        ),
        "tolerations": st.lists(
            st.fixed_dictionaries(
                {"operator": st.sampled_from(["Exists", "Equal"])},
                optional={
                    "key": KEYS,
                    "value": NAMES,
                    "effect": st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
                    "toleration_seconds": st.integers(-1, 600),
                },
            ),
            max_size=2,
        ),
    },
)
PARAMETERS = st.dictionaries(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True), st.text(max_size=30), max_size=4
)


@pytest.mark.parametrize("version", schemas.VERSIONS)
@pytest.mark.parametrize("name", GOLDEN)
def test_a_plan_is_valid_in_every_version(name: str, version: str) -> None:
    for each in objects_of(GOLDEN[name]):
        schemas.check(each, version)


def test_there_are_many_schemas_and_they_detect_errors() -> None:
    assert len(schemas.VERSIONS) >= 13
    wrong = {**GOLDEN["one"].pods[0], "spec": {**GOLDEN["one"].pods[0]["spec"], "restartPolicies": "Never"}}
    for version in schemas.VERSIONS:
        with pytest.raises(ValidationError):
            schemas.check(wrong, version)


@settings(max_examples=150, deadline=None)
@given(
    name=st.one_of(st.text(min_size=1, max_size=80), st.just("intent-classification")),
    parameters=PARAMETERS,
    pod_options=POD_OPTIONS,
    instances=st.integers(1, 4),
    job_id=st.integers(1, 2**31 - 1),
    attempt=st.integers(1, 100),
    with_everything=st.booleans(),
    version=st.sampled_from(schemas.VERSIONS),
)
def test_every_accepted_job_has_a_valid_plan(
    name: str,
    parameters: dict[str, str],
    pod_options: dict[str, Any],
    instances: int,
    job_id: int,
    attempt: int,
    with_everything: bool,
    version: str,
) -> None:
    how = algorithm(**OF_ALGORITHM) if with_everything else algorithm()
    pod = FOR_ALL if with_everything else PodOptions()
    declared = [key for key in parameters if not is_reserved(key)][1:]  # the others are passed as JSON
    how = how.model_copy(update={"parameters": dict.fromkeys(declared, Parameter())})
    for key, value in list(parameters.items()):
        try:
            how.resolve({key: value})
        except InvalidField:
            del parameters[key]
    sent: dict[str, Any] = {}
    accepted = InstanceOptions()
    for key, value in pod_options.items():
        try:  # together with those before: more processes than GPUs are refused, for example
            together = ANY_REQUEST.check({**sent, key: value})
            pod_resolver({}, pod=pod).resolve(Entry(name=name, value=how), ONE, together)
        except InvalidField:
            continue
        sent[key], accepted = value, together
    kept = OPTIONS.dump_python(accepted, mode="json", exclude_defaults=True)
    the_job = job_of(
        spec(
            parameters,
            algorithm=name,
            environment=how.resolve(parameters),
            instances=instances,
            pod_options=json.loads(json.dumps(kept)),  # as a store returns them
        ),
        job_id=job_id,
        attempt=attempt,
    )
    the_plan = planned(the_job, how, pod)
    assert [rank_of(pod) for pod in the_plan.pods] == list(range(instances))
    assert (the_plan.service is None) == (instances == 1)
    for each in objects_of(the_plan):
        assert group_of(each) == the_job.group
        schemas.check(each, version)
        check_rules_outside_schemas(each)
    check_variables(the_plan, the_job.spec.environment)


def check_rules_outside_schemas(manifest: dict[str, Any]) -> None:
    metadata, spec = manifest["metadata"], manifest["spec"]
    assert json.loads(json.dumps(manifest)) == manifest
    assert DNS_LABEL.fullmatch(metadata["name"])
    for value in (*metadata["labels"].values(), *spec.get("nodeSelector", {}).values()):
        assert LABEL_VALUE.fullmatch(value), value
    if manifest["kind"] == "Pod":
        assert DNS_LABEL.fullmatch(spec["hostname"])
        volumes = Counter(volume["name"] for volume in spec["volumes"])
        assert set(volumes.values()) == {1}
        for container in spec["containers"]:
            for several, key in (("volumeMounts", "mountPath"), ("env", "name")):
                counted = Counter(each[key] for each in container.get(several, ()))
                assert set(counted.values()) <= {1}, counted
            assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes.keys()


def check_variables(the_plan: KubernetesPlan, variables: Mapping[str, str]) -> None:
    """Check that parameters arrive as sent, after the kubelet's expansion of variables."""
    for pod in the_plan.pods:
        found = {each["name"]: each.get("value") for each in training_of(pod)["env"]}
        for key, value in variables.items():
            assert expanded(found[key] or "", found) == value


def expanded(text: str, others: dict[str, Any]) -> str:
    """Expand a value as k8s.io/kubernetes/third_party/forked/golang/expansion does."""

    def one(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else str(others.get(match[1], match[0]))

    return re.sub(r"\$\$|\$\(([^)]*)\)", one, text)

"""Options of pods: the allowed values in configuration and requests, and the error messages."""

from typing import Any, get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from job_tracker.backends.kubernetes.options import KubernetesRecipe, PodOptions, VolumeMount
from job_tracker.catalog import Algorithm, Entry, RequestLimits
from job_tracker.catalog.groups import Composition
from job_tracker.catalog.layers import overlay
from job_tracker.catalog.request_limits import PodOptionName
from job_tracker.catalog.requested import RequestedPodOptions, Toleration
from job_tracker.domain.errors import InvalidField
from job_tracker.domain.group import InstanceOptions
from tests.support.catalog import SETTINGS, pod_resolver
from tests.support.kubernetes_plans import algorithm, recipe

EVERY_OPTION = RequestLimits(
    allowed_request_options=frozenset(get_args(PodOptionName)),
    max_resources={"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "4"},
    allowed_key_prefixes=("example.com", "kubernetes.io"),
    allowed_labels=frozenset({"team", "topology.kubernetes.io/zone", "other.org/app"}),
)


def refused(limits: RequestLimits, sent: dict[str, Any], the_algorithm: Algorithm | None = None) -> str:
    entry = Entry(name="a", value=the_algorithm or algorithm())
    resolver = pod_resolver({})
    one = Composition({"master": 1}, None, ends_with_master=False)
    with pytest.raises(InvalidField) as caught:
        resolver.resolve(entry, one, limits.check(sent))
    return str(caught.value)


def kept(options: InstanceOptions) -> Any:
    """The options that were sent, as JSON."""
    return TypeAdapter(InstanceOptions).dump_python(options, mode="json", exclude_defaults=True)


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"resources": {"cpu": "8000m", "memory": "16Gi", "nvidia.com/gpu": "4", "example.com/fpga": "9"}},
        {"nproc_per_node": 8},
        {"labels": {"team": "ml", "example.com/team": ""}, "annotations": {"note": "any text: åß語"}},
        {"labels": {"topology.kubernetes.io/zone": "a", "other.org/app": "b"}},
        {"node_selector": {"kubernetes.io/arch": "arm64"}, "priority_class": "high"},
        {"tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}]},
    ],
)
def test_allowed_options_are_kept_as_sent(sent: dict[str, Any]) -> None:
    assert kept(EVERY_OPTION.check(sent)) == sent


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"resources": {"cpu": "9"}}, "pod_options.resources.cpu: '9' is not allowed; at most 8 is allowed"),
        (
            {"resources": {"memory": "1Ti"}},
            "pod_options.resources.memory: '1Ti' is not allowed; at most 16Gi",
        ),
        ({"resources": {"cpu": "much"}}, "pod_options.resources.cpu: 'much' is not a quantity; allowed:"),
        ({"resources": {"cpu": "0.0001"}}, "pod_options.resources: '0.0001' of cpu is not allowed"),
        ({"resources": {"cpu": "0"}}, "pod_options.resources: '0' of cpu is not allowed"),
        ({"resources": {"memory": "1.5"}}, "pod_options.resources: '1.5' of memory is not allowed"),
        ({"resources": {"nvidia.com/gpu": "500m"}}, "pod_options.resources: '500m' of nvidia.com/gpu is not"),
        ({"resources": {"gpu": "1"}}, "pod_options.resources.gpu: 'gpu' is not a resource; allowed: cpu"),
        ({"resources": {"kubernetes.io/x": "1"}}, "pod_options.resources.kubernetes.io/x: 'kubernetes.io/x'"),
        ({"resources": {"cpu": True}}, "pod_options.resources.cpu: True is not allowed: it must be"),
        ({"resources": "all"}, "pod_options.resources: 'all' is not allowed: it must be"),
        ({"nproc_per_node": 0}, "pod_options.nproc_per_node: 0 is not allowed: it must be greater"),
        (
            {"nproc_per_node": "x"},
            "pod_options.nproc_per_node: 'x' is not allowed: it must be a valid",
        ),
        ({"labels": {"-a": "x"}}, "pod_options.labels.-a: '-a' is not a key; allowed:"),
        ({"labels": {"a": "b c"}}, "pod_options.labels.a: 'b c' is not the value of a label; allowed:"),
        ({"labels": {"training-service/rank": "0"}}, "'training-service/rank' is a reserved key"),
        ({"labels": {"app.kubernetes.io/instance": "x"}}, "'app.kubernetes.io/instance' is a reserved key"),
        ({"labels": {"app.kubernetes.io/managed-by": "x"}}, "is a reserved key, which the service sets"),
        *(
            (
                {"labels": {key: "x"}},
                f"pod_options.labels: {key!r} is not allowed: other teams' Services and network policies ",
            )
            for key in (
                *("app", "Team", "pod-template-hash", "app.kubernetes.io/part-of", "kubernetes.io/x"),
                *("x.k8s.io/a", "other.org/team", "sub.example.com/team"),
            )
        ),
        (
            {"labels": {"app": "x"}},
            "allowed: keys with a prefix in allowed_key_prefixes (example.com, kubernetes.io) and the "
            "keys in allowed_labels (other.org/app, team, topology.kubernetes.io/zone)",
        ),
        ({"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "x"}}, "is a reserved key"),
        ({"annotations": {"node.k8s.io/x": "x"}}, "is a reserved key"),
        (
            {"annotations": {"iam.amazonaws.com/role": "admin"}},
            "use no prefix, or the prefix example.com, or the prefix kube",
        ),
        ({"annotations": {"a": "x" * 5000}}, "an annotation of 5000 characters is not allowed"),
        (
            {"tolerations": [{"effect": "Never"}]},
            "pod_options.tolerations.0.effect: 'Never' is not allowed: it must be",
        ),
        ({"tolerations": [{"key": "a", "toleration_seconds": 1}]}, "only with effect NoExecute"),
        ({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}, "is not allowed with operator"),
        ({"tolerations": [{"value": "b"}]}, "key: a value is required with operator Equal"),
        (
            {"tolerations": [{"key": "a", "x": 1}]},
            "pod_options.tolerations.0.x: unknown name; allowed",
        ),
        ({"priority_class": "High!"}, "pod_options.priority_class: 'High!' is not the name of an object"),
        ({"node_selector": {"a/b/c": "x"}}, "pod_options.node_selector.a/b/c: 'a/b/c' is not a key"),
        ({"placement": {}}, "pod_options.placement: near or apart is required; allowed: machine, rack, zone"),
        ({"placement": {"near": "room"}}, "pod_options.placement.near: 'room' is not allowed: it must be"),
        (
            {"placement": {"near": "machine", "apart": "machine"}},
            "near 'machine' is not allowed with apart 'machine', since it is not larger; allowed: rack, zone",
        ),
        ({"placement": {"near": "rack", "apart": "zone"}}, "since it is not larger; allowed: none"),
        ({"image": "mine"}, "pod_options.image: a request may not set this option; allowed: annotations"),
        ({"service_account": "admin"}, "pod_options.service_account: a request may not set this option"),
        ({"volumes": [{"claim": "x", "mount_path": "/x"}]}, "pod_options.volumes: a request may not"),
        ({"runtime_class": "x"}, "pod_options.runtime_class: a request may not"),
        ({"pod_template": {}}, "pod_options.pod_template: a request may not"),
        ({"a\nb": 1}, r"pod_options.a\nb: a request may not set this option"),
    ],
)
def test_a_refused_option_is_named_with_its_value(sent: dict[str, Any], message: str) -> None:
    answer = refused(EVERY_OPTION, sent)
    assert answer.startswith("pod_options.")
    assert message in answer
    assert answer.isprintable()


@pytest.mark.parametrize(
    "sent", [{"node_selector": {"a": "b"}}, {"tolerations": []}, {"priority_class": "high"}]
)
def test_a_request_may_not_choose_nodes_or_priority_by_default(sent: dict[str, Any]) -> None:
    assert "allowed: annotations, labels, nproc_per_node, placement, resources" in refused(
        RequestLimits(), sent
    )


def test_by_default_only_annotations_without_a_prefix_are_allowed() -> None:
    for key in ("app", "team", "app.kubernetes.io/part-of", "example.com/team"):
        assert "allowed_key_prefixes (none) and the keys in allowed_labels (none)" in refused(
            RequestLimits(), {"labels": {key: "x"}}
        )
    assert kept(RequestLimits().check({"annotations": {"note": "x"}})) == {"annotations": {"note": "x"}}


@pytest.mark.parametrize("engine", ["kubernetes", "docker"])
def test_allowed_labels_are_allowed_by_name(engine: str) -> None:
    settings = SETTINGS.model_validate({"backend": engine, engine: {"allowed_labels": ["team"]}})
    labels = {"labels": {"team": "ml"}}
    assert kept(settings.plugin.limits.check(labels)) == labels
    refused(settings.plugin.limits, {"labels": {"app": "x"}})
    with pytest.raises(ValidationError, match="'training-service/rank' is a reserved key"):
        SETTINGS.model_validate({engine: {"allowed_labels": ["training-service/rank"]}})


def test_several_processes_need_a_command() -> None:
    message = refused(EVERY_OPTION, {"nproc_per_node": 2}, algorithm(command=()))
    assert message.startswith("pod_options.nproc_per_node: 2 is not allowed")


def test_options_override_those_of_lower_layers() -> None:
    below = PodOptions(
        resources={"cpu": "1", "memory": "1Gi"},
        tolerations=(Toleration(key="a", operator="Exists"),),
        shm_size="2Gi",
        priority_class="low",
        volumes=(VolumeMount(claim="a", mount_path="/a"), VolumeMount(claim="b", mount_path="/b")),
    )
    over = recipe(
        resources={"cpu": "2", "nvidia.com/gpu": "1"},
        tolerations=(Toleration(key="b", operator="Exists"), Toleration(key="a", operator="Exists")),
        volumes=(VolumeMount(claim="c", mount_path="/a"),),
    )
    both = overlay(PodOptions, overlay(PodOptions, below, over), RequestedPodOptions(priority_class="high"))
    assert both.resources == {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}
    assert [each.key for each in both.tolerations] == ["b", "a"]
    assert [(each.claim, each.mount_path) for each in both.volumes] == [("b", "/b"), ("c", "/a")]
    assert (both.shm_size, both.priority_class, both.nproc_per_node) == ("2Gi", "high", 1)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"image": "Upper/Case"}, "is not an image"),
        ({"image": "a b"}, "is not an image"),
        ({"image": ""}, "is not an image"),
        ({"command": [""]}, "at least 1 character"),
        ({"command": [], "nproc_per_node": 2}, "needs a command"),
        ({"image_pull_policy": "Sometimes"}, "'Always', 'IfNotPresent' or 'Never'"),
        ({"shm_size": "0"}, "must be more than 0"),
        ({"run_as_user": 0}, "greater than or equal to 1"),
        ({"volumes": [{"claim": "a", "mount_path": "relative"}]}, "is not allowed; allowed: absolute paths"),
        ({"volumes": [{"claim": "a", "mount_path": "/a/../b"}]}, "is not allowed; allowed: absolute paths"),
        ({"volumes": [{"claim": "a", "mount_path": "/a", "sub_path": "../b"}]}, "is not a path in a volume"),
        ({"volumes": [{"claim": "a", "mount_path": "/tmp"}]}, "/tmp is already used"),
        ({"volumes": [{"host_path": "/", "mount_path": "/a"}]}, "Extra inputs"),
        ({"secret_environment": {"RANK": {"secret": "a", "key": "b"}}}, "is a reserved name"),
        ({"secret_environment": {"TRAINING_X": {"secret": "a", "key": "b"}}}, "is a reserved name"),
        ({"secret_environment": {"A": "plain"}}, "valid dictionary or instance of SecretValue"),
        ({"labels": {"training-service/rank": "1"}}, "is a reserved key"),
        (
            {"pod_template": {"spec": {"restartPolicy": "Always"}}},
            "pod_template.spec.restartPolicy: the service sets this",
        ),
        (
            {"pod_template": {"spec": {"hostname": "a-b"}}},
            "pod_template.spec.hostname: the service sets this",
        ),
        ({"pod_template": {"kind": "Job"}}, "pod_template.kind: unknown key; only metadata and spec"),
        (
            {"pod_template": {"metadata": {"name": "mine"}}},
            "pod_template.metadata.name: unknown key; only labels",
        ),
        (
            {"pod_template": {"metadata": {"labels": {"training-service/rank": "1"}}}},
            "the service sets this key",
        ),
        ({"pod_template": {"metadata": {"labels": "x"}}}, "does not have the structure of a pod"),
        ({"pod_template": {"spec": {"containers": "x"}}}, "does not have the structure of a pod"),
        ({"pod_template": {"spec": {"containers": None}}}, "container 'training' must stay"),
        ({"pod_template": {"$patch": "delete"}}, "the service sets this field"),
        (
            {"pod_template": {"spec": {"containers": [{"name": "training", "$patch": "delete"}]}}},
            "must stay",
        ),
        ({"pod_template": {"spec": {"containers": [{"name": "training", "image": "x"}]}}}, "must stay"),
        ({"pod_template": {"spec": {"containers": [{"name": "training", "env": None}]}}}, "must stay"),
        (
            {"pod_template": {"spec": {"containers": [{"name": "training", "env": [{"name": "JOB_ID"}]}]}}},
            "the service sets variable JOB_ID",
        ),
        ({"pod_template": {"spec": {"containers": [{}]}}}, "name, which identifies the element, is missing"),
    ],
)
def test_invalid_configuration_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        KubernetesRecipe(**{"image": "a", "command": ["b"], **options})


@pytest.mark.parametrize(
    "image",
    [
        "intent-classification:0.1.0",
        "registry.example.com:5000/a/b_c/d:v1",
        "localhost/a",
        "ghcr.io/orca3/intent@sha256:" + "0" * 64,
        "python:3.11-slim@sha256:" + "a" * 64,
    ],
)
def test_valid_names_of_images_are_accepted(image: str) -> None:
    assert KubernetesRecipe(image=image).image == image


def test_quantities_may_be_numbers() -> None:
    assert PodOptions.model_validate({"resources": {"cpu": 0.5, "nvidia.com/gpu": 1}}).resources == {
        "cpu": "0.5",
        "nvidia.com/gpu": "1",
    }


def test_a_parameter_cannot_replace_a_secret_of_the_same_name() -> None:
    secret = algorithm(secret_environment={"HUB_TOKEN": {"secret": "hub", "key": "token"}})
    assert secret.resolve({"HUB_TOKEN": "x"}) == {"TRAINING_PARAMETERS": '{"HUB_TOKEN": "x"}'}
    strict = secret.model_copy(update={"free_parameters": False})
    with pytest.raises(InvalidField, match="HUB_TOKEN: the algorithm has no such parameter"):
        strict.resolve({"HUB_TOKEN": "x"})


def test_the_built_in_algorithm_runs_on_kubernetes() -> None:
    assert SETTINGS(backend="kubernetes").algorithms["intent-classification"].kubernetes is not None


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"algorithms": {"a": {}}}, "algorithms.a.kubernetes.image is missing"),
        (
            {
                "algorithms": {"a": {"kubernetes": {"image": "x"}}},
                "kubernetes": {"pod": {"nproc_per_node": 2}},
            },
            "algorithms.a.kubernetes, together with the options of kubernetes for all algorithms: "
            "nproc_per_node is 2, which needs a command",
        ),
        (
            {
                "algorithms": {
                    "a": {
                        "framework": "tensorflow",
                        "kubernetes": {"image": "x"},
                        "roles": {"ps": {"kubernetes": {"nproc_per_node": 2}}},
                    }
                }
            },
            "algorithms.a.kubernetes for the role ps, together with the options of kubernetes for all",
        ),
        ({"kubernetes": {"allowed_request_options": ["image"]}}, "Input should be 'resources'"),
        ({"kubernetes": {"max_resources": {"cpu": "x"}}}, "is not a quantity"),
        ({"kubernetes": {"namespace": "A"}}, "is not a namespace"),
        ({"kubernetes": {"instance": "a b"}}, "is not the value of a label"),
        ({"kubernetes": {"instance": ""}}, "at least 1 character"),
    ],
)
def test_conflicting_settings_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        SETTINGS(backend="kubernetes", **changes)


def test_the_limits_are_configurable() -> None:
    settings = SETTINGS.model_validate(
        {
            "kubernetes": {
                "allowed_request_options": ["resources"],
                "max_resources": {"nvidia.com/gpu": 8},
                "allowed_key_prefixes": ["example.com"],
                "allowed_labels": ["team"],
            }
        }
    )
    limits = settings.kubernetes
    assert limits.allowed_request_options == {"resources"}
    assert limits.max_resources == {"nvidia.com/gpu": "8"}
    assert limits.allowed_key_prefixes == ("example.com",)
    assert limits.allowed_labels == {"team"}

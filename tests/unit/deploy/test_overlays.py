"""The objects of every overlay are valid, confined, and consistent with each other."""

import re
import tomllib
from base64 import b64decode
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from job_tracker.backends.kubernetes.plan import KubernetesPlan, plan
from tests.support import schemas
from tests.support.catalog import SETTINGS, algorithm_of, resolved
from tests.support.jobs import job
from tests.support.overlays import ROOT, Manifest, container, deployed, kustomized, one, settings_in_pod
from tests.support.pod_security import violations
from training_service.settings.loading import load

OVERLAYS = ["kind", "debian", "production"]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
# The debian overlay is for Kubernetes 1.20, for which the package has no schemas. It is the kind overlay
# with a few changed fields; tests/integration/kubernetes and `make demo-kubernetes` apply it.
OF_SCHEMAS = ["kind", "production"]


def _built(overlay: str) -> list[Manifest]:
    return kustomized(f"overlays/{overlay}")


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def objects(overlay: str) -> list[Manifest]:
    return deepcopy(_built(overlay))


def only(objects: list[Manifest], kind: str) -> Manifest:
    (found,) = [each for each in objects if each["kind"] == kind]
    return found


def settings_of(objects: list[Manifest], folder: Path, patch: pytest.MonkeyPatch) -> Any:
    """Load the settings as in the service's pod, in which only the namespace is a variable."""
    [variable] = container(objects)["env"]
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.namespace"
    assert list(only(objects, "ConfigMap")["data"]) == ["config.toml"]
    return settings_in_pod(objects, folder, patch)


def secrets_of(objects: list[Manifest]) -> dict[str, str]:
    """Return the variables that the service gets from its Secret."""
    data = only(objects, "Secret").get("data") or {}
    return {name: b64decode(value).decode() for name, value in data.items()}


def groups_of(settings: Any) -> list[KubernetesPlan]:
    """Plan groups as the service does, including an algorithm with the service's own name."""
    recipe = {"image": "image:1", "command": ("python",)}
    algorithms = {**settings.algorithms, "training-service": algorithm_of(kubernetes=recipe)}
    jobs = [
        resolved(job(algorithm=name, instances=3), algorithms, settings.backend, settings.plugin)
        for name in algorithms
    ]
    return [plan(each, settings.kubernetes) for each in jobs]


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return bool(selector) and selector.items() <= labels.items()


@pytest.mark.parametrize("version", schemas.VERSIONS)
@pytest.mark.parametrize("overlay", OF_SCHEMAS, indirect=True)
def test_every_object_is_valid(objects: list[Manifest], version: str) -> None:
    for each in objects:
        schemas.check(each, version)


def test_debian_differs_from_kind_only_where_1_20_requires_it() -> None:
    kind, debian = deepcopy(_built("kind")), deepcopy(_built("debian"))
    for claim in ("training-service-data", "training-storage"):
        assert one(debian, "PersistentVolumeClaim", claim)["spec"].pop("storageClassName") == "by-hand"
    (asked,), (instead,) = (deployed(each)["spec"]["containers"] for each in (kind, debian))
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert asked[probe].pop("grpc") == {"port": 51003}
        assert instead[probe].pop("tcpSocket") == {"port": "health"}
    assert debian == kind


def test_the_manual_volumes_fit_the_claims() -> None:
    text = (ROOT / "deploy/overlays/debian/volumes.yaml").read_text()
    claims = {
        each["metadata"]["name"]: each["spec"]
        for each in _built("debian")
        if each["kind"] == "PersistentVolumeClaim"
    }
    volumes = list(yaml.safe_load_all(text.replace("FOLDER", "/folder")))
    assert sorted(each["metadata"]["name"] for each in volumes) == sorted(claims)
    for volume in volumes:
        schemas.check(volume, schemas.VERSIONS[0])
        claim = claims[volume["metadata"]["name"]]
        assert volume["spec"]["claimRef"] == {"namespace": "training", "name": volume["metadata"]["name"]}
        assert volume["spec"]["storageClassName"] == claim["storageClassName"]
        assert volume["spec"]["accessModes"] == claim["accessModes"]
        assert volume["spec"]["capacity"] == claim["resources"]["requests"]


def test_all_objects_are_in_one_namespace_with_the_restricted_standard(
    objects: list[Manifest],
) -> None:
    namespace = only(objects, "Namespace")["metadata"]
    assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    others = {each["metadata"].get("namespace") for each in objects if each["kind"] != "Namespace"}
    assert others == {namespace["name"]}


def test_the_services_pods_meet_the_restricted_standard_and_more(objects: list[Manifest]) -> None:
    spec = deployed(objects)["spec"]
    assert violations(spec) == []
    assert spec["enableServiceLinks"] is False
    for each in spec["containers"]:
        assert each["securityContext"]["readOnlyRootFilesystem"] is True


def test_training_pods_meet_the_restricted_standard(
    objects: list[Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group in groups_of(settings_of(objects, tmp_path, monkeypatch)):
        for pod in group.pods:
            assert violations(pod["spec"]) == []
            assert pod["spec"]["enableServiceLinks"] is False
            assert pod["spec"]["automountServiceAccountToken"] is False
            assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_every_pod_has_limits_and_does_not_change_the_owner_of_its_volumes_again(
    objects: list[Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = groups_of(settings_of(objects, tmp_path, monkeypatch))
    for spec in (deployed(objects)["spec"], *(pod["spec"] for group in groups for pod in group.pods)):
        assert all(each["emptyDir"]["sizeLimit"] for each in spec["volumes"] if "emptyDir" in each)
        assert spec["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
        assert spec["securityContext"]["runAsGroup"] == 10001


def test_every_shipped_algorithm_requests_resources_and_has_a_memory_limit(
    objects: list[Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(objects, tmp_path, monkeypatch)
    assert settings.algorithms
    for name in settings.algorithms:
        asked = job(algorithm=name, instances=2)
        for pod in plan(
            resolved(asked, settings.algorithms, settings.backend, settings.plugin), settings.kubernetes
        ).pods:
            (training,) = pod["spec"]["containers"]
            assert training["resources"]["requests"].keys() >= {"cpu", "memory"}
            assert "memory" in training["resources"]["limits"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("hostNetwork", True),
        ("hostPID", True),
        ("volumes", [{"name": "host", "hostPath": {"path": "/"}}]),
        ("securityContext.runAsUser", 0),
        ("securityContext.runAsNonRoot", None),
        ("securityContext.seccompProfile", None),
        ("securityContext.sysctls", [{"name": "kernel.msgmax", "value": "1"}]),
        ("containers.0.securityContext.allowPrivilegeEscalation", None),
        ("containers.0.securityContext.privileged", True),
        ("containers.0.securityContext.runAsNonRoot", False),
        ("containers.0.securityContext.runAsUser", 0),
        ("containers.0.securityContext.seccompProfile", {"type": "Unconfined"}),
        ("containers.0.securityContext.capabilities", {"drop": ["NET_RAW"]}),
        ("containers.0.securityContext.capabilities", {"drop": ["ALL"], "add": ["SYS_PTRACE"]}),
        ("containers.0.securityContext.procMount", "Unmasked"),
        ("containers.0.ports", [{"containerPort": 1, "hostPort": 1}]),
        ("initContainers", [{"name": "first"}]),
    ],
)
def test_the_check_of_the_standard_detects_violations(path: str, value: Any) -> None:
    spec = deepcopy(deployed(_built("kind"))["spec"])
    *parents, last = path.split(".")
    place: Any = spec
    for part in parents:
        place = place[int(part)] if part.isdigit() else place[part]
    place[last] = value
    assert violations(spec) != []


def test_the_service_selects_only_its_own_pods(
    objects: list[Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, deployment = one(objects, "Service")["spec"], one(objects, "Deployment")["spec"]
    own = deployment["template"]["metadata"]["labels"]
    policy = one(objects, "NetworkPolicy")["spec"]
    assert deployment["selector"] == {"matchLabels": service["selector"]} == policy["podSelector"]
    assert selects(service["selector"], own)
    for group in groups_of(settings_of(objects, tmp_path, monkeypatch)):
        for pod in group.pods:
            assert not selects(service["selector"], pod["metadata"]["labels"])


def test_the_network_policy_selects_groups_but_not_the_service(
    objects: list[Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = one(objects, "NetworkPolicy", "training-groups")["spec"]
    selectors = [
        only(kustomized("optional/no-drain"), "PodDisruptionBudget")["spec"]["selector"],
        policy["podSelector"],
        policy["ingress"][0]["from"][0]["podSelector"],
    ]
    settings = settings_of(objects, tmp_path, monkeypatch)
    for selector in selectors:
        assert list(selector) == ["matchLabels"]
        assert not selects(selector["matchLabels"], deployed(objects)["metadata"]["labels"])
        for group in groups_of(settings):
            assert all(selects(selector["matchLabels"], pod["metadata"]["labels"]) for pod in group.pods)
    assert len(policy["ingress"]) == len(policy["ingress"][0]["from"]) == 1
    assert "ports" not in policy["ingress"][0]  # torch and NCCL use arbitrary ports


def test_ports_match_the_settings(
    objects: list[Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(objects, tmp_path, monkeypatch)
    ports = {each["name"]: each["containerPort"] for each in container(objects)["ports"]}
    grpc, metrics = settings.server.address, settings.metrics
    assert grpc.startswith("0.0.0.0:")
    assert settings.server.insecure
    assert metrics.address == "0.0.0.0"
    reports = settings.reports
    assert reports.listen is not None
    assert settings.server.health_address is not None
    own, of_reports, health = (
        int(each.rpartition(":")[2]) for each in (grpc, reports.listen, settings.server.health_address)
    )
    assert ports == {"grpc": own, "reports": of_reports, "metrics": metrics.port, "health": health}
    assert reports.address == f"training-service:{of_reports}"
    service = one(objects, "Service")["spec"]["ports"]
    assert {**{each["targetPort"]: each["port"] for each in service}, "health": health} == ports
    assert len(service) == len(ports) - 1
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = container(objects)[probe]  # a command would take 0.4 CPU-seconds for an interpreter
        assert asked.get("grpc") == {"port": health} or asked["tcpSocket"] == {"port": "health"}
        assert asked.keys().isdisjoint({"exec", "httpGet"})


def test_training_pods_reach_the_port_of_reports_only(
    objects: list[Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others, own = one(objects, "NetworkPolicy")["spec"]["ingress"]
    assert [each["port"] for each in others["ports"]] == ["grpc", "metrics"]
    assert [each["port"] for each in own["ports"]] == ["reports"]
    [asked], [of_groups] = (each["from"] for each in (others, own))
    [apart] = asked["podSelector"]["matchExpressions"]
    for group in groups_of(settings_of(objects, tmp_path, monkeypatch)):
        for pod in group.pods:
            labels = pod["metadata"]["labels"]
            assert apart["operator"] == "NotIn"
            assert labels[apart["key"]] in apart["values"]
            assert selects(of_groups["podSelector"]["matchLabels"], labels)


def test_files_and_claims_match_the_settings(
    objects: list[Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(objects, tmp_path, monkeypatch)
    spec, main = deployed(objects)["spec"], container(objects)
    mounts = {each["name"]: each["mountPath"] for each in main["volumeMounts"]}
    volumes = {each["name"]: each for each in spec["volumes"]}
    assert sorted(mounts) == sorted(volumes)
    assert main["args"] == ["serve", "--config", f"{mounts['config']}/config.toml"]
    assert mounts["data"] == str(settings.storage.data_dir)
    assert settings.storage.uri == mounts["storage"]
    claims = {each["metadata"]["name"] for each in objects if each["kind"] == "PersistentVolumeClaim"}
    used = [each["persistentVolumeClaim"] for each in spec["volumes"] if "persistentVolumeClaim" in each]
    assert {each["claimName"] for each in used} == claims
    assert volumes["config"]["configMap"]["name"] == only(objects, "ConfigMap")["metadata"]["name"]
    (secret,) = main["envFrom"]
    assert secret["secretRef"]["name"] == only(objects, "Secret")["metadata"]["name"]
    (storage,) = settings.kubernetes.pod.volumes
    assert storage.mount_path == settings.storage.uri
    assert volumes["storage"]["persistentVolumeClaim"]["claimName"] == storage.claim


def test_replicas_share_a_store_and_a_folder_and_are_not_evicted_together(
    objects: list[Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = one(objects, "Deployment")["spec"]
    settings_of(objects, tmp_path, monkeypatch)
    for name, value in secrets_of(objects).items():
        monkeypatch.setenv(name, value)
    settings = load(tmp_path / "config.toml")
    claims = [each["spec"] for each in objects if each["kind"] == "PersistentVolumeClaim"]
    if deployment["replicas"] == 1:
        assert settings.store.url is None
        assert deployment["strategy"] == {"type": "Recreate"}
        return
    assert settings.store.url is not None
    assert deployment["strategy"]["type"] == "RollingUpdate"
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert [claim["accessModes"] for claim in claims] == [["ReadWriteMany"]] * 2
    budget = one(objects, "PodDisruptionBudget")["spec"]
    assert 1 <= budget["maxUnavailable"] < deployment["replicas"]
    (apart,) = deployed(objects)["spec"]["affinity"]["podAntiAffinity"].values()
    selectors = [budget["selector"], *(each["podAffinityTerm"]["labelSelector"] for each in apart)]
    assert selectors == [deployment["selector"]] * 2


def test_by_default_nothing_blocks_the_drain_of_a_node_with_training_pods(
    objects: list[Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets = [each["spec"]["selector"] for each in objects if each["kind"] == "PodDisruptionBudget"]
    for group in groups_of(settings_of(objects, tmp_path, monkeypatch)):
        for pod in group.pods:
            labels = pod["metadata"]["labels"]
            assert not any(selects(selector["matchLabels"], labels) for selector in budgets)


@pytest.mark.parametrize("version", schemas.VERSIONS)
def test_optional_objects_are_valid(version: str) -> None:
    for name in ("gang", "kueue", "no-drain", "stacks", "token-secrets"):
        for each in kustomized(f"optional/{name}"):
            schemas.check(each, version)


def test_token_secrets_need_only_the_right_to_create_secrets(objects: list[Manifest]) -> None:
    more = kustomized("optional/token-secrets")
    assert only(more, "Role")["rules"] == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}]
    (subject,) = only(more, "RoleBinding")["subjects"]
    assert subject["name"] == one(objects, "ServiceAccount")["metadata"]["name"]


def test_a_gang_scheduler_needs_only_rights_about_pod_groups(objects: list[Manifest]) -> None:
    more = kustomized("optional/gang")
    groups = ["scheduling.volcano.sh", "scheduling.x-k8s.io"]
    verbs = ["create", "delete", "get", "patch"]
    assert only(more, "Role")["rules"] == [{"apiGroups": groups, "resources": ["podgroups"], "verbs": verbs}]
    (subject,) = only(more, "RoleBinding")["subjects"]
    assert subject["name"] == one(objects, "ServiceAccount")["metadata"]["name"]


def test_kueue_needs_only_to_read_its_queues_and_to_give_up_workloads(objects: list[Manifest]) -> None:
    more = kustomized("optional/kueue")
    assert only(more, "Role")["rules"] == [
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["delete", "get"]},
        {
            "apiGroups": ["visibility.kueue.x-k8s.io"],
            "resources": ["localqueues/pendingworkloads"],
            "verbs": ["get"],
        },
    ]
    (subject,) = only(more, "RoleBinding")["subjects"]
    assert subject["name"] == one(objects, "ServiceAccount")["metadata"]["name"]


def test_stacks_need_only_the_right_to_run_commands_in_pods(objects: list[Manifest]) -> None:
    more = kustomized("optional/stacks")
    rules = [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]}]
    assert only(more, "Role")["rules"] == rules
    (subject,) = only(more, "RoleBinding")["subjects"]
    assert subject["name"] == one(objects, "ServiceAccount")["metadata"]["name"]


def test_only_production_has_replicas() -> None:
    counts = {overlay: one(_built(overlay), "Deployment")["spec"]["replicas"] for overlay in OVERLAYS}
    assert counts == {"kind": 1, "debian": 1, "production": 2}


def test_the_account_is_bound_to_its_role_and_the_pods_use_it(objects: list[Manifest]) -> None:
    account, role, binding = (one(objects, kind) for kind in ("ServiceAccount", "Role", "RoleBinding"))
    assert account["automountServiceAccountToken"] is False  # other pods have to request it
    assert role["rules"]
    api = "rbac.authorization.k8s.io"
    assert binding["roleRef"] == {"apiGroup": api, "kind": "Role", "name": role["metadata"]["name"]}
    subject = {"kind": "ServiceAccount", "name": account["metadata"]["name"]}
    assert binding["subjects"] == [{**subject, "namespace": account["metadata"]["namespace"]}]
    spec = deployed(objects)["spec"]
    assert spec["serviceAccountName"] == account["metadata"]["name"]
    assert spec["automountServiceAccountToken"] is True


def test_the_settings_select_kubernetes_and_the_namespace_of_the_pod(
    objects: list[Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(objects, tmp_path, monkeypatch)
    assert settings.backend == "kubernetes"
    assert settings.kubernetes.namespace == only(objects, "Namespace")["metadata"]["name"]
    assert settings.kubernetes.kubeconfig is None


def test_the_user_is_the_same_in_images_pods_and_settings(
    objects: list[Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = settings_of(objects, tmp_path, monkeypatch).kubernetes.pod
    assert pod.run_as_user is not None
    user = str(pod.run_as_user)
    service = (ROOT / "Dockerfile").read_text()
    trainer = (ROOT / "trainer_images/intent_classification/Dockerfile").read_text()
    for dockerfile in (service, trainer):
        made = re.findall(r"useradd --uid (\d+)", dockerfile)
        *_, runs = re.findall(r"^USER (\d+)(?::(\d+))?$", dockerfile, flags=re.MULTILINE)
        assert made == [user]
        assert set(runs) <= {user, ""}
    context = deployed(objects)["spec"]["securityContext"]
    # Service and trainers write to the same storage, so they share a group.
    ids = (context["runAsUser"], context["runAsGroup"], context["fsGroup"], pod.fs_group)
    assert {str(each) for each in ids} == {user}


def test_every_image_has_the_version_of_the_project(
    objects: list[Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(objects, tmp_path, monkeypatch)
    recipes = [each.kubernetes for each in settings.algorithms.values()]
    images = [container(objects)["image"], *(each.image for each in recipes if each is not None)]
    names = [image.rpartition("/")[2] for image in images]
    assert {f"training-service:{VERSION}", f"intent-classification:{VERSION}"} <= set(names)
    assert {name.rpartition(":")[2] for name in names} == {VERSION}


def test_images_are_built_with_the_version_of_the_project() -> None:
    script = (ROOT / "scripts/images").read_text()
    assert re.findall(r"^version=(.*)$", script, flags=re.MULTILINE) == [VERSION]
    assert re.findall(r'--tag "([^"]+)"', script) == [
        "training-service:$version",
        "${name//_/-}:$version",
    ]
    trainer = tomllib.loads((ROOT / "trainer_images/pyproject.toml").read_text())
    assert trainer["project"]["version"] == VERSION
    default = SETTINGS().algorithms["intent-classification"].kubernetes
    assert default is not None
    assert default.image == f"intent-classification:{VERSION}"
    base = yaml.safe_load((ROOT / "deploy/base/deployment.yaml").read_text())
    (main,) = base["spec"]["template"]["spec"]["containers"]
    assert main["image"] == f"training-service:{VERSION}"

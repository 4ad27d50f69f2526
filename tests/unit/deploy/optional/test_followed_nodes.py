"""The right to read nodes and pods, for flavors whose capacity follows the nodes."""

import os
from pathlib import Path

import pytest
import yaml

from tests.support import schemas
from tests.support.overlays import ROOT, Manifest, kustomized, one

NAME = "training-service-followed-nodes"


@pytest.fixture
def objects(tmp_path: Path) -> list[Manifest]:
    """The objects of an overlay that lists the folder among its resources."""
    deploy = os.path.relpath(ROOT / "deploy", tmp_path)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "training",
        "resources": [f"{deploy}/base", f"{deploy}/optional/followed-nodes"],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return kustomized(str(tmp_path))


def test_it_gives_the_account_of_the_service_the_right_to_read_and_nothing_else(
    objects: list[Manifest],
) -> None:
    role = one(objects, "ClusterRole", NAME)
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}
    assert [rule["resources"] for rule in role["rules"]] == [["nodes"], ["pods"]]
    binding = one(objects, "ClusterRoleBinding", NAME)
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    account = one(objects, "ServiceAccount")
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account["metadata"]["name"], "namespace": "training"}
    ]


def test_no_overlay_has_this_right_by_itself() -> None:
    for overlay in ("kind", "debian", "production"):
        kinds = {each["kind"] for each in kustomized(f"overlays/{overlay}")}
        assert "ClusterRole" not in kinds


@pytest.mark.parametrize("version", schemas.VERSIONS)
def test_the_objects_are_valid(objects: list[Manifest], version: str) -> None:
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        schemas.check(one(objects, kind, NAME), version)

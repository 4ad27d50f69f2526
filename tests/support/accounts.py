"""Service accounts of a cluster, and kubeconfigs that authenticate as such an account only."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.cluster import Cluster

Rule = Mapping[str, Any]

_RBAC = "rbac.authorization.k8s.io"
_ROOT = Path(__file__).parents[2]


def rules_in(path: str) -> list[Rule]:
    """Return the rules of the only Role in a file of the repository."""
    [role] = [each for each in yaml.safe_load_all((_ROOT / path).read_text()) if each["kind"] == "Role"]
    return list(role["rules"])


def account(name: str, rules: Iterable[Rule]) -> list[dict[str, Any]]:
    """Return the manifests of an account with a Role of these rules."""
    metadata = {"name": name}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": list(rules)},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name}],
        },
    ]


def cluster_role(
    name: str, account: str, namespace: str, rights: Iterable[tuple[str, str]]
) -> list[dict[str, Any]]:
    """Return the manifests of a ClusterRole with these rights (verb and resource), bound to an account."""
    rules = [{"apiGroups": [""], "resources": [resource], "verbs": [verb]} for verb, resource in rights]
    metadata = {"name": name}
    return [
        {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        },
    ]


def token(cluster: Cluster, namespace: str, name: str) -> str:
    """Return a token of the account, valid for an hour.

    This call works with all versions; `kubectl create token` exists only from Kubernetes 1.24 on.
    """
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    order = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(order))
    return str(json.loads(answer)["status"]["token"])


def kubeconfig(cluster: Cluster, path: Path, token: str) -> Path:
    """Write a kubeconfig with the token to `path`.

    Everything else, such as the address, comes from the administrator's kubeconfig.
    """
    flat = cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json")
    config = json.loads(flat)
    config["users"][0]["user"] = {"token": token}
    path.write_text(json.dumps(config))
    return path

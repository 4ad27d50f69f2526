"""A namespace that holds groups, and its remaining objects."""

import json
from dataclasses import dataclass
from typing import Any

from tests.support.cluster import Cluster


@dataclass(frozen=True)
class Place:
    """The namespace of a test, used with kubectl."""

    cluster: Cluster
    namespace: str

    def kubectl(self, *args: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl("-n", self.namespace, *args, stdin=stdin)

    def apply(self, *manifests: dict[str, Any]) -> None:
        self.cluster.apply(self.namespace, *manifests)

    def left(self) -> list[str]:
        """Return the existing pods and Services."""
        return self.kubectl("get", "pods,services", "-o", "name").split()

    def uid(self, *what: str) -> str:
        return str(self.cluster.get(self.namespace, *what)["metadata"]["uid"])

    def in_pod(self, name: str, program: str) -> None:
        """Run a Python program in the container of the pod."""
        self.kubectl("exec", name, "--", "python3", "-c", program)

    def tells_evictions(self) -> bool:
        """Return whether the status of an evicted pod shows the eviction, as it does from Kubernetes 1.26
        on.
        """
        return self._minor_version() >= 26

    def evict(self, name: str) -> None:
        """Evict a pod with the API, as a drain of its node does."""
        version = "policy/v1" if self._minor_version() >= 22 else "policy/v1beta1"
        metadata = {"name": name, "namespace": self.namespace}
        order = {"apiVersion": version, "kind": "Eviction", "metadata": metadata}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/eviction"
        self.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(order))

    def _minor_version(self) -> int:
        answer = json.loads(self.kubectl("get", "--raw", "/version"))
        return int(answer["minor"].rstrip("+"))

    def token(self, account: str) -> str:
        """Return a token of a service account, valid for ten minutes."""
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token"
        order = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = self.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(order))
        return str(json.loads(answer)["status"]["token"])

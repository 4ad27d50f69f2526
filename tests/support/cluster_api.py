"""Calls of a cluster's API from this process. kubectl would take 0.25 s of CPU time for each call."""

import base64
import http.client
import json
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

_CLUSTER_WIDE = {
    *("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"),
    *("Namespace", "Node", "PersistentVolume"),
}
_CONFLICT = 409
_FAILED = 400
_PATIENCE = 30
Body = Mapping[str, Any]


class ApiFailed(Exception):
    """The API server refused the call, or did not answer."""


class ClusterApi:
    """The API of a cluster, as the administrator."""

    def __init__(self, server: str, context: ssl.SSLContext) -> None:
        self._server = urlsplit(server)
        self._context = context

    @classmethod
    def of(cls, kubeconfig: Path) -> "ClusterApi | None":
        """Return the API that a kubeconfig names; None if the kubeconfig lacks the certificate of the
        authority, or the client's certificate or key.
        """
        config = yaml.safe_load(kubeconfig.read_text())
        current = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], current["cluster"])["cluster"]
        user = _named(config["users"], current["user"])["user"]
        parts = [user.get("client-certificate-data"), user.get("client-key-data")]
        authority = cluster.get("certificate-authority-data")
        if authority is None or None in parts:
            return None
        context = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
        with tempfile.NamedTemporaryFile() as both:  # an SSL context reads certificates only from files
            both.write(b"\n".join(map(base64.b64decode, parts)))
            both.flush()
            context.load_cert_chain(both.name)
        return cls(cluster["server"], context)

    def call(self, method: str, path: str, body: Body | None = None) -> dict[str, Any]:
        """Make the call, and return the JSON of the answer. Raises ApiFailed."""
        status, text = self._answer(method, path, body)
        if status >= _FAILED:
            raise ApiFailed(f"{method} {path}: {status}: {text}")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def apply(self, namespace: str, manifest: Body) -> None:
        """Create the object of the manifest, or change it to agree with the manifest. Raises ApiFailed."""
        place = _path(manifest, namespace)
        status, text = self._answer("POST", place, manifest)
        if status == _CONFLICT:
            place += f"/{manifest['metadata']['name']}"
            status, text = self._answer("PATCH", place, manifest, "application/merge-patch+json")
        if status >= _FAILED:
            raise ApiFailed(f"{place}: {status}: {text}")

    def _answer(
        self, method: str, path: str, body: Body | None, kind: str = "application/json"
    ) -> tuple[int, str]:
        """Make the call on a new connection, because the server may have been restarted.

        Return status and text.
        """
        connection = http.client.HTTPSConnection(
            str(self._server.hostname), self._server.port, timeout=_PATIENCE, context=self._context
        )
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, {"Content-Type": kind, "Accept": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise ApiFailed(f"{method} {path}: {error}") from error
        finally:
            connection.close()


def _path(manifest: Body, namespace: str) -> str:
    """Return the path of all objects of the manifest's kind in the namespace."""
    group, kind = manifest["apiVersion"], manifest["kind"]
    root = f"/apis/{group}" if "/" in group else f"/api/{group}"
    place = "" if kind in _CLUSTER_WIDE else f"/namespaces/{manifest['metadata'].get('namespace', namespace)}"
    return f"{root}{place}/{kind.lower()}s"


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(each for each in entries if each["name"] == name)

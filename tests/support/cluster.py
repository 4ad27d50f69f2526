"""A Kubernetes cluster for tests: the Python interface of tests/cluster/cluster. Fixtures:
cluster_fixtures.py.
"""

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.cluster_api import ApiFailed, ClusterApi

SCRIPT: Final = Path(__file__).parents[1] / "cluster" / "cluster"

PROGRAM_IMAGE: Final = os.environ.get("TEST_CLUSTER_PROGRAM_IMAGE", "training-service.test/program:1")
"""tests/support/program.py as an image: runs as uid 10001, on a read-only root file system."""

ON_CI: Final = os.environ.get("CI", "") not in ("", "0", "false")
"""On CI every test must run, so a missing part is a failure; elsewhere, the test is skipped."""

ONE_MORE: Final = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw0")
"""The name of this worker process of pytest if it is not the first one; else empty. Only such a process has
its own cluster.
"""

# This applies to all code of this process that uses the cluster, even if it does not use this module.
_STATE: Final = os.environ.get("TEST_CLUSTER_STATE", "/var/tmp/training-service-cluster")
os.environ["TEST_CLUSTER_STATE"] = _STATE.removesuffix(ONE_MORE) + ONE_MORE

_ENVIRONMENT: Final = dict(os.environ)
"""The environment at the start of this process, with the variables of the cluster.

Parts of the cluster outlive the test that restarts them. So they must not get variables that the test has
set, such as a HOME in its own folder.
"""

_CACHE: Final = os.environ.get("TEST_CLUSTER_CACHE", str(Path.home() / ".cache/training-service/cluster"))
_KUBECTL: Final = shutil.which("kubectl", path=f"{os.environ['PATH']}:{_CACHE}/bin")
"""The path of kubectl; None before it is built. It is started directly, because SCRIPT takes time to start.
"""
_RESOURCE = re.compile("(pod|service|node|endpoint|secret|configmap|serviceaccount|namespace)s?")
_PATIENCE: Final = 90.0
"""Seconds after which a command counts as stuck. At a load of 90, kubectl took more than 30 s."""
_NO_CLUSTER_HERE: Final = 3
_NOT_POSSIBLE_HERE: Final = 4


class NoClusterHere(Exception):
    """This machine cannot have a cluster. The message says what each kind of cluster lacks."""


class CommandFailed(Exception):
    """A command ended with a status other than 0, or not in time."""


@dataclass
class Cluster:
    """A cluster that is up. Every method raises CommandFailed if its work is not done in time.

    If this kind of cluster does not support a method, the method skips the test; on CI, it fails the test.
    """

    kubeconfig: Path
    provider: str
    _disturbed: bool = False

    @classmethod
    def up(cls) -> "Cluster":
        """Bring the cluster up, unless it is up, and return it.

        The first time may take minutes. Raises NoClusterHere.
        """
        provider = _run("provider").strip()
        _run("up", timeout=1800, show=True)
        return cls(kubeconfig=Path(_run("kubeconfig").strip()), provider=provider)

    def down(self) -> None:
        """Stop the cluster and remove its content. A given cluster (KUBECONFIG) stays as it is."""
        _run("down", timeout=120)

    @cached_property
    def api(self) -> ClusterApi | None:
        """The cluster's API; None if the kubeconfig lacks values that its calls need."""
        return ClusterApi.of(self.kubeconfig)

    def kubectl(self, *args: str, stdin: str | None = None, timeout: float = _PATIENCE) -> str:
        """Run kubectl, and return its output."""
        if _KUBECTL is None:
            return _run("kubectl", *args, stdin=stdin, timeout=timeout)
        places = {name: value for name, value in _ENVIRONMENT.items() if not name.lower().endswith("_proxy")}
        places["KUBECONFIG"] = str(self.kubeconfig)
        return _run(*args, program=_KUBECTL, environment=places, stdin=stdin, timeout=timeout)

    def apply(self, namespace: str, *manifests: Mapping[str, Any]) -> None:
        """Create or change the objects that the manifests describe."""
        if self.api is None:
            items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
            self.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(items))
            return
        with _calls():
            for manifest in manifests:
                self.api.apply(namespace, manifest)

    def get(self, namespace: str, *what: str) -> dict[str, Any]:
        """Return an object (`"pod", "x"`), or a list of objects (`"pods"`), as the API returns it."""
        path = _path(namespace, what)
        if self.api is None or path is None:
            found: dict[str, Any] = json.loads(self.kubectl("get", "-n", namespace, "-o", "json", *what))
            return found
        with _calls():
            return self.api.call("GET", path)

    def clear(self, namespace: str) -> None:
        """Delete all pods of the namespace at once, and then the namespace, without waiting for its end."""
        if self.api is None:
            at_once = ("--all", "--grace-period=0", "--force", "--wait=false")
            self.kubectl("delete", "pods", "-n", namespace, *at_once)
            self.kubectl("delete", "namespace", namespace, "--wait=false")
            return
        with _calls():
            place = f"/api/v1/namespaces/{namespace}"
            self.api.call("DELETE", f"{place}/pods", {"gracePeriodSeconds": 0})
            self.api.call("DELETE", place)

    def load(self, archive: Path) -> None:
        """Load an image into the node, from an archive of `docker save`."""
        _run("load", str(archive), timeout=110)

    def load_program_image(self) -> str:
        """Load PROGRAM_IMAGE into the node, rebuilt if the program has changed. Return its name."""
        _run("program-image", PROGRAM_IMAGE, timeout=110)
        return PROGRAM_IMAGE

    def hollow(self, nodes: int) -> None:
        """Set the number of simulated nodes, on which pods run for ever without doing anything."""
        _run("hollow", str(nodes), timeout=110)

    def gpus(self, number: int) -> None:
        """Let every existing node offer this number of GPUs, without any devices."""
        _run("gpus", str(number))

    # Faults. PART is apiserver, etcd, scheduler, controller-manager, kubelet or containerd. `heal` undoes the
    # faults that a test leaves.

    def start(self, part: str) -> None:
        """Start a part, unless it runs. Afterwards, the API server is ready."""
        _run("start", part, timeout=100)

    def stop(self, part: str) -> None:
        """Stop a part, and wait until it is gone."""
        self._disturb("stop", part)

    def kill(self, part: str) -> None:
        """Kill a part. On kind, kubelet or systemd soon starts it again."""
        self._disturb("kill", part)

    def pause(self, part: str) -> None:
        """Freeze a part: connections to it stay open, and nothing answers."""
        self._disturb("pause", part)

    def resume(self, part: str) -> None:
        """End a pause."""
        _run("cont", part)

    def slow(self, part: str, percent: float | None) -> None:
        """Limit a part to this percentage of one CPU (0.1 or more); None: no limit."""
        if percent is None:
            _run("slow", part, "off")
        else:
            self._disturb("slow", part, f"{percent:.1f}")

    @contextmanager
    def stopped(self, part: str) -> Iterator[None]:
        """Stop a part during the block."""
        self.stop(part)
        try:
            yield
        finally:
            self.start(part)

    @contextmanager
    def paused(self, part: str) -> Iterator[None]:
        """Freeze a part during the block."""
        self.pause(part)
        try:
            yield
        finally:
            self.resume(part)

    def heal(self) -> None:
        """Undo all faults of parts, and wait until the node is Ready. Do nothing if there were none."""
        if self._disturbed:
            _run("up", timeout=110)
            self._disturbed = False

    def _disturb(self, action: str, part: str, *more: str) -> None:
        try:
            _run(action, part, *more, timeout=100)
        except CommandFailed:  # the command may have been partly done
            self._disturbed = True
            raise
        self._disturbed = True


def _path(namespace: str, what: Sequence[str]) -> str | None:
    """Return the path of an object or a list in the API; None if only kubectl can find it."""
    kind, *names = what
    resource = _RESOURCE.fullmatch(kind)
    if resource is None or len(names) > 1 or any(name.startswith("-") for name in names):
        return None
    place = "" if resource[1] in ("namespace", "node") else f"/namespaces/{namespace}"
    return "/".join((f"/api/v1{place}/{resource[1]}s", *names))


@contextmanager
def _calls() -> Iterator[None]:
    try:
        yield
    except ApiFailed as error:
        raise CommandFailed(str(error)) from error


def _run(
    *args: str,
    program: str | Path = SCRIPT,
    environment: Mapping[str, str] = _ENVIRONMENT,
    stdin: str | None = None,
    timeout: float = _PATIENCE,
    show: bool = False,
) -> str:
    # In a session of its own, so that Ctrl-C on a test run does not end parts of the cluster.
    try:
        done = subprocess.run(
            [program, *args],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            stdout=subprocess.PIPE,
            stderr=None if show else subprocess.PIPE,
            text=True,
            timeout=timeout,
            env=environment,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(f"{Path(program).name} {' '.join(args)}: not done after {timeout:g} s") from error
    if done.returncode == 0:
        return done.stdout
    if program == SCRIPT and done.returncode == _NO_CLUSTER_HERE:
        raise NoClusterHere(done.stderr)
    if program == SCRIPT and done.returncode == _NOT_POSSIBLE_HERE and not ON_CI:
        pytest.skip(done.stderr)
    raise CommandFailed(
        f"{Path(program).name} {' '.join(args)}: status {done.returncode}\n{done.stderr or ''}"
    )


def address_for_pods(cluster: Cluster) -> str:
    """Return the address at which pods reach this machine: its address towards the cluster's first node."""
    addresses = cluster.get("default", "nodes")["items"][0]["status"]["addresses"]
    [node] = [each["address"] for each in addresses if each["type"] == "InternalIP"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((node, 9))  # sends nothing
        return str(probe.getsockname()[0])

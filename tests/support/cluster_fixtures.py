"""Fixtures of tests that need a Kubernetes cluster. A conftest.py imports all that is in __all__.

The cluster is brought up before the first test, outside of the tests' time limit, and stays up for the next
run; on CI it is taken down, and so are those of further worker processes. Where there can be none, these
tests are skipped; on CI they fail.
"""

import re
import time
import uuid
from collections.abc import Generator, Iterator

import pytest

from tests.support.cluster import ON_CI, ONE_MORE, Cluster, CommandFailed, NoClusterHere

__all__ = [
    "cluster",
    "namespace",
    "program_image",
    "pytest_collection_finish",
    "pytest_runtest_makereport",
]

_OUTCOME = pytest.StashKey[Cluster | NoClusterHere | CommandFailed]()
_NAMESPACE = pytest.StashKey[tuple[Cluster, str]]()
_ACCOUNT_SECONDS = 60
_LABEL = "training-service.test/namespace"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Bring the cluster up if a test of this run needs it."""
    wanted = any(item.get_closest_marker("cluster") for item in session.items)
    if not wanted or session.config.option.collectonly or _OUTCOME in session.stash:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        try:
            session.stash[_OUTCOME] = Cluster.up()
        except (NoClusterHere, CommandFailed) as error:
            session.stash[_OUTCOME] = error


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster, shared by all tests: make no changes but in namespaces, or undo them."""
    outcome = request.session.stash[_OUTCOME]
    if isinstance(outcome, NoClusterHere) and not ON_CI:
        pytest.skip(str(outcome))
    if isinstance(outcome, Exception):
        pytest.fail(str(outcome), pytrace=False)
    yield outcome
    outcome.heal()
    if ON_CI or ONE_MORE:
        outcome.down()
    # else: namespaces are deleted in the background, and a cluster that was handed in is not ours to stop


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for this test alone. If the test fails, its report shows what was in there."""
    slug = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].strip("-")
    name = f"{slug}-{uuid.uuid4().hex[:8]}"
    metadata = {"name": name, "labels": {_LABEL: "true"}}
    cluster.apply("default", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    request.node.stash[_NAMESPACE] = (cluster, name)
    wait_for_account(cluster, name)
    yield name
    cluster.heal()
    # At once, not after their grace periods: the next test is to have the node for itself.
    cluster.clear(name)


@pytest.fixture(scope="session")
def program_image(cluster: Cluster) -> str:
    """The name of the image of tests/support/program.py, which the node has."""
    return cluster.load_program_image()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put what was in the namespace of a test that failed into its report."""
    report = yield
    title = "Kubernetes"
    if report.failed and report.when != "teardown" and _NAMESPACE in item.stash:
        report.sections.append((title, _describe(*item.stash[_NAMESPACE])))
    return report


def wait_for_account(cluster: Cluster, namespace: str) -> None:
    """Wait for what the API server needs before it takes pods: it makes them in the background.

    After a test that disturbed the API server that takes as long as the controllers' election.
    """
    deadline = time.monotonic() + _ACCOUNT_SECONDS
    while True:
        try:
            cluster.get(namespace, "serviceaccount", "default")
            cluster.get(namespace, "configmap", "kube-root-ca.crt")
            return
        except CommandFailed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _describe(cluster: Cluster, namespace: str) -> str:
    """The pods, the events and the logs of a namespace; as far as the API server answers."""
    lines: list[str] = []

    def show(*args: str) -> str:
        lines.append(f"$ kubectl {' '.join(args)}")
        lines.append(cluster.kubectl(*args, "-n", namespace, "--request-timeout=5s", timeout=15))
        return lines[-1]

    try:
        show("get", "pods", "-o", "wide")
        show("get", "events", "--sort-by=.metadata.creationTimestamp")
        for pod in cluster.get(namespace, "pods", "--request-timeout=5s")["items"]:
            if pod["status"].get("containerStatuses"):
                show("logs", pod["metadata"]["name"], "--all-containers", "--tail=50")
    except CommandFailed as error:
        lines.append(str(error))
    return "\n".join(lines)

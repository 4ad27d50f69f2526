"""Fixtures of tests that need a Kubernetes cluster. A conftest.py imports all names in __all__.

The cluster is brought up before the first test, outside of the tests' time limit, and stays up for the next
run. It is taken down on CI, and if it belongs to a worker process other than the first. If this machine
cannot have a cluster, these tests are skipped; on CI they fail.
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
    """The cluster, which all tests share: a test changes only its namespace, or undoes its changes."""
    outcome = request.session.stash[_OUTCOME]
    if isinstance(outcome, NoClusterHere) and not ON_CI:
        pytest.skip(str(outcome))
    if isinstance(outcome, Exception):
        pytest.fail(str(outcome), pytrace=False)
    yield outcome
    outcome.heal()
    if ON_CI or ONE_MORE:
        outcome.down()
    # otherwise, the cluster stays up, and the tests' namespaces are deleted in the background


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for this test alone. If the test fails, its report shows the namespace's content."""
    slug = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].strip("-")
    name = f"{slug}-{uuid.uuid4().hex[:8]}"
    metadata = {"name": name, "labels": {_LABEL: "true"}}
    cluster.apply("default", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    request.node.stash[_NAMESPACE] = (cluster, name)
    wait_for_account(cluster, name)
    yield name
    cluster.heal()
    # Delete pods at once, without their grace periods: the next test needs the whole node.
    cluster.clear(name)


@pytest.fixture(scope="session")
def program_image(cluster: Cluster) -> str:
    """The name of the image of tests/support/program.py, after it was loaded into the node."""
    return cluster.load_program_image()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the content of a failed test's namespace to its report."""
    report = yield
    title = "Kubernetes"
    if report.failed and report.when != "teardown" and _NAMESPACE in item.stash:
        report.sections.append((title, _describe(*item.stash[_NAMESPACE])))
    return report


def wait_for_account(cluster: Cluster, namespace: str) -> None:
    """Wait for the objects of the namespace without which the API server accepts no pods.

    Controllers make these objects in the background. After a test that disturbed the API server, this takes
    as long as the controllers' election of a leader.
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
    """Return the pods, the events and the logs of a namespace, as far as the API server answers."""
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

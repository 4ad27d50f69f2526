"""The deployed Role: the backend needs each of its rights and no others, and the Role allows nothing else."""

import asyncio
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from job_tracker.backends.kubernetes.backend import KubernetesBackend
from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.errors import LaunchFailed, TrackerError
from job_tracker.domain.group import Phase
from job_tracker.domain.job import Job, JobState
from tests.support import accounts
from tests.support.accounts import Rule
from tests.support.backends import KubernetesGroups, groups_of, printed, seen, started, text_of
from tests.support.cluster import Cluster, CommandFailed
from tests.support.jobs import NOON, job

Right = tuple[str, str]
"""A verb and a resource."""


def rights_of(rules: Iterable[Rule]) -> list[Right]:
    return [(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]]


def rules_of(rights: Iterable[Right]) -> list[Rule]:
    return [{"apiGroups": [""], "resources": [resource], "verbs": [verb]} for verb, resource in rights]


RULES = accounts.rules_in("deploy/base/rbac.yaml")
RIGHTS = rights_of(RULES)
FOREVER = {"RUN_SECONDS": "forever", "PRINT": "up"}
SHORT = timedelta(seconds=1)
_DENIAL = re.compile(r'User "system:serviceaccount:[^:]+:([^"]+)" cannot (\w+) resource "([^"]+)"')


@dataclass(frozen=True)
class Scenario:
    """Everything that the backend does, by one account and with separate jobs."""

    account: str
    world: KubernetesGroups
    first_job: int

    def open(self) -> KubernetesBackend:
        return self.world.open(instance=self.account, lost_margin=0.5)

    def job(self, number: int, algorithm: str = "program", instances: int = 1) -> Job:
        return job(FOREVER, algorithm=algorithm, instances=instances, job_id=self.first_job + number)

    def others(self) -> list[Manifest]:
        """Return foreign objects: a Service without pods, and an object under a name that we will need."""
        jobs = (self.job(number, instances=2) for number in (4, 5))
        left, taken = (self.world.plan(each, instance=self.account).service for each in jobs)
        assert left is not None
        assert taken is not None
        foreign = {"name": taken["metadata"]["name"], "namespace": self.world.namespace}
        return [left, {**taken, "metadata": foreign}]

    async def run(self) -> None:
        """Run the whole scenario. Raises the first error."""
        await self.run_failures(await self.run_basics())

    async def run_basics(self) -> KubernetesBackend:
        """Launch a group, adopt it by another service, and stop it. Return that service's backend."""
        first = self.open()
        await first.connect()
        together = self.job(1, instances=2)
        await first.check(together)
        await started(first, together)
        first.events.job_saved(replace(together, state=JobState.QUEUED), together)
        await first.events.flush()
        assert await printed(first, together.group, 1) == "up\n"
        await first.close()

        # Another service adopts the group, and a repeated launch finds all of its objects.
        second = self.open()
        adopted = await started(second, together)
        assert [rank.phase for rank in adopted.statuses] == [Phase.RUNNING] * 2
        stopped = await second.stop(together.group, SHORT)
        assert stopped is not None
        assert [rank.phase for rank in stopped.statuses] == [Phase.STOPPED] * 2
        assert await text_of(second.logs(together.group, 1)) == "up\n"
        await second.sweep(NOON)  # removes the Service without pods
        return second

    async def run_failures(self, second: KubernetesBackend) -> None:
        """Run a group that ends by itself, one on a lost node, and one that cannot be launched."""
        by_itself = job({"PRINT": "done"}, job_id=self.first_job + 2)
        await second.launch(by_itself)
        await seen(second, by_itself.group, lambda o: o.master.status.phase is Phase.SUCCEEDED)
        await second.stop(by_itself.group, SHORT, NOON)
        assert await text_of(second.logs(by_itself.group, 0)) == "done\n"
        assert await self.world.kept(self.account) == {by_itself.group.name}
        await second.sweep(NOON)
        await second.sweep(NOON, [by_itself.group])

        lost = self.job(3, algorithm="lost")
        await second.launch(lost)
        await second.stop(lost.group, SHORT)

        with pytest.raises(LaunchFailed) as refused:
            await second.launch(self.job(5, instances=2))
        await second.stop(self.job(5).group, SHORT)
        if refused.value.diagnosis.category is not Category.NAME_TAKEN:
            raise refused.value
        assert await groups_of(second) == {}


class Scenarios:
    """Concurrent scenarios in one namespace."""

    def __init__(self, cluster: Cluster, namespace: str, image: str, folder: Path) -> None:
        self.cluster, self.namespace, self.image, self.folder = cluster, namespace, image, folder
        self.worlds: list[KubernetesGroups] = []

    async def run(self, rights_by_account: dict[str, list[Right]], *, whole: bool = True) -> dict[str, str]:
        """Run a scenario, or its first part, for each account. Return the error of each, or ""."""
        made = [self._scenario(account) for account in rights_by_account]
        roles = [accounts.account(name, rules_of(rights)) for name, rights in rights_by_account.items()]
        objects = [
            *(each for role in roles for each in role),
            *(each for scenario in made for each in scenario.others()),
        ]
        self.cluster.apply(self.namespace, *objects)
        tokens = [
            asyncio.to_thread(accounts.token, self.cluster, self.namespace, each.account) for each in made
        ]
        for scenario, token in zip(made, await asyncio.gather(*tokens), strict=True):
            accounts.kubeconfig(self.cluster, scenario.world.kubeconfig, token)
        ends = await asyncio.gather(
            *(each.run() if whole else each.run_basics() for each in made), return_exceptions=True
        )
        return {each.account: _error_text(end) for each, end in zip(made, ends, strict=True)}

    async def end(self) -> None:
        for world in self.worlds:
            await world.end()

    def _scenario(self, account: str) -> Scenario:
        kubeconfig = self.folder / f"{account}.kubeconfig"
        world = KubernetesGroups(kubeconfig, self.namespace, self.image, self.folder / account)
        # A pod on a node that does not exist: its end is never reported.
        world.add("lost", pod_template={"spec": {"nodeName": "no-such-node"}})
        self.worlds.append(world)
        return Scenario(account, world, first_job=10 * len(self.worlds))


def _error_text(end: object) -> str:
    match end:
        case LaunchFailed():
            return f"{end}: {end.diagnosis.detail}"
        case TrackerError():
            return str(end)
        case BaseException():
            raise end
        case _:
            return ""


@pytest.fixture
async def scenarios(cluster: Cluster, namespace: str, program_image: str, tmp_path: Path) -> Any:
    made = Scenarios(cluster, namespace, program_image, tmp_path)
    yield made
    await made.end()


async def test_the_role_is_enough_for_the_whole_scenario(
    scenarios: Scenarios, caplog: pytest.LogCaptureFixture
) -> None:
    assert await scenarios.run({"whole": RIGHTS}) == {"whole": ""}
    assert "forbidden" not in caplog.text
    assert "Traceback" not in caplog.text
    left = scenarios.cluster.kubectl("get", "pods,services", "-n", scenarios.namespace, "-o", "name").split()
    assert left == ["service/program-15-master-service"]  # the foreign one


async def test_each_right_of_the_role_is_needed(
    scenarios: Scenarios, caplog: pytest.LogCaptureFixture
) -> None:
    def without(right: Right) -> str:
        return "without-" + "-".join(right).replace("/", "-")

    rights = {without(right): [each for each in RIGHTS if each != right] for right in RIGHTS}
    ends = await scenarios.run(rights, whole=False)
    denied: dict[str, set[Right]] = {account: set() for account in ends}
    for account, verb, resource in _DENIAL.findall("\n".join([caplog.text, *ends.values()])):
        denied[account].add((verb, resource))
    assert denied == {without(right): {right} for right in RIGHTS}


def test_the_role_allows_nothing_else(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    cluster.apply(namespace, *accounts.account("whole", RULES), *accounts.account("nobody", []))
    ours, default = (_may_do(cluster, namespace, name, tmp_path) for name in ("whole", "nobody"))
    assert default <= ours
    assert ours - default == {("", *right) for right in RIGHTS}


FORBIDDEN = [
    # A tracker has no reason to run programs in pods, or to watch their terminals.
    ("create", "pods", "exec", None),
    ("create", "pods", "attach", None),
    ("create", "pods", "portforward", None),
    ("create", "pods", "ephemeralcontainers", None),
    ("deletecollection", "pods", None, None),
    ("update", "pods", None, None),
    ("patch", "services", None, None),
    ("get", "secrets", None, None),
    ("list", "secrets", None, None),
    ("get", "configmaps", None, None),
    ("list", "events", None, None),
    ("get", "persistentvolumeclaims", None, None),
    ("create", "serviceaccounts", "token", None),
    ("list", "nodes", None, ""),
    ("list", "namespaces", None, ""),
    ("list", "pods", None, ""),
    ("list", "pods", None, "default"),
    ("create", "pods", None, "kube-system"),
    ("get", "pods", "log", "kube-system"),
]


def test_the_role_gives_no_access_to_other_objects(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    cluster.apply(namespace, *accounts.account("whole", RULES))
    asked = [("create", "pods", None, None), *FORBIDDEN]
    reviews = [
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {
                "resourceAttributes": {
                    "verb": verb,
                    "resource": resource,
                    "subresource": below or "",
                    "namespace": namespace if where is None else where,
                }
            },
        }
        for verb, resource, below, where in asked
    ]
    kubeconfig = _kubeconfig(cluster, namespace, "whole", tmp_path)
    answers = _ask(cluster, kubeconfig, *reviews)
    allowed = [question for question, answer in zip(asked, answers, strict=True) if answer["allowed"]]
    assert allowed == asked[:1]
    with pytest.raises(CommandFailed, match="secrets is forbidden"):
        cluster.kubectl("--kubeconfig", str(kubeconfig), "get", "secrets", "-n", namespace)


def _may_do(cluster: Cluster, namespace: str, account: str, folder: Path) -> set[tuple[str, str, str]]:
    """Return everything that the account may do in the namespace: group, verb and resource."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    kubeconfig = _kubeconfig(cluster, namespace, account, folder)
    [answer] = _ask(cluster, kubeconfig, review)
    assert not answer["incomplete"]
    return {
        (group, verb, resource)
        for rule in answer["resourceRules"]
        for group in rule["apiGroups"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }


def _kubeconfig(cluster: Cluster, namespace: str, account: str, folder: Path) -> Path:
    token = accounts.token(cluster, namespace, account)
    return accounts.kubeconfig(cluster, folder / f"{account}.kubeconfig", token)


def _ask(cluster: Cluster, kubeconfig: Path, *reviews: Manifest) -> list[dict[str, Any]]:
    """Send reviews with the kubeconfig's account, and return the answers."""
    stdin = json.dumps({"apiVersion": "v1", "kind": "List", "items": reviews})
    command = ("--kubeconfig", str(kubeconfig), "create", "-f", "-", "-o", "json")
    text, answers, at = cluster.kubectl(*command, stdin=stdin), [], 0
    while at < len(text):  # concatenated objects, or in later versions a list
        answer, at = json.JSONDecoder().raw_decode(text, at)
        answers += [each["status"] for each in answer.get("items", [answer])]
        at += len(text[at:]) - len(text[at:].lstrip())
    return answers

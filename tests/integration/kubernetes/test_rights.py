"""The Role that is deployed: enough for all that the backend does, each right needed, and nothing else."""

import asyncio
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from job_tracker.backends.kubernetes import KubernetesBackend
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

RBAC = Path(__file__).parents[3] / "deploy/base/rbac.yaml"
[ROLE] = [each for each in yaml.safe_load_all(RBAC.read_text()) if each["kind"] == "Role"]

Right = tuple[str, str]
"""A verb and a resource."""


def rights_of(rules: Iterable[Rule]) -> list[Right]:
    return [(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]]


def rules_of(rights: Iterable[Right]) -> list[Rule]:
    return [{"apiGroups": [""], "resources": [resource], "verbs": [verb]} for verb, resource in rights]


RIGHTS = rights_of(ROLE["rules"])
FOREVER = {"RUN_SECONDS": "forever", "PRINT": "up"}
SHORT = timedelta(seconds=1)
_DENIAL = re.compile(r'User "system:serviceaccount:[^:]+:([^"]+)" cannot (\w+) resource "([^"]+)"')


@dataclass(frozen=True)
class Life:
    """All that the backend ever does, by one account, with jobs of its own."""

    account: str
    world: KubernetesGroups
    first_job: int

    def open(self) -> KubernetesBackend:
        return self.world.open(instance=self.account, lost_margin=0.5)

    def job(self, number: int, algorithm: str = "program", instances: int = 1) -> Job:
        return job(FOREVER, algorithm=algorithm, instances=instances, job_id=self.first_job + number)

    def others(self) -> list[Manifest]:
        """What is there before: a Service whose pods are gone, and a stranger under a name of ours."""
        jobs = (self.job(number, instances=2) for number in (4, 5))
        left, taken = (self.world.plan(each, instance=self.account).service for each in jobs)
        assert left is not None
        assert taken is not None
        stranger = {"name": taken["metadata"]["name"], "namespace": self.world.namespace}
        return [left, {**taken, "metadata": stranger}]

    async def live(self) -> None:
        """Raises whatever goes wrong."""
        await self.live_on(await self.youth())

    async def youth(self) -> KubernetesBackend:
        """A group launched, found again by another service, and stopped; that service's backend."""
        first = self.open()
        await first.connect()
        together = self.job(1, instances=2)
        await first.check(together)
        await started(first, together)
        first.events.job_saved(replace(together, state=JobState.QUEUED), together)
        await first.events.flush()
        assert await printed(first, together.group, 1) == "up\n"
        await first.close()

        # Another service goes on with it, and a launch that it repeats finds all of it there.
        second = self.open()
        adopted = await started(second, together)
        assert [rank.phase for rank in adopted.statuses] == [Phase.RUNNING] * 2
        stopped = await second.stop(together.group, SHORT)
        assert stopped is not None
        assert [rank.phase for rank in stopped.statuses] == [Phase.STOPPED] * 2
        assert await text_of(second.logs(together.group, 1)) == "up\n"
        await second.sweep(NOON)  # of the Service whose pods are gone
        return second

    async def live_on(self, second: KubernetesBackend) -> None:
        """A group that ends by itself, one whose node is lost, one that cannot be launched."""
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


class Lives:
    """Lives in one namespace, at once."""

    def __init__(self, cluster: Cluster, namespace: str, image: str, folder: Path) -> None:
        self.cluster, self.namespace, self.image, self.folder = cluster, namespace, image, folder
        self.worlds: list[KubernetesGroups] = []

    async def live(self, rights_by_account: dict[str, list[Right]], *, whole: bool = True) -> dict[str, str]:
        """What went wrong in each account's life, or in its first part; nothing if nothing did."""
        made = [self._life(account) for account in rights_by_account]
        roles = [accounts.account(name, rules_of(rights)) for name, rights in rights_by_account.items()]
        objects = [
            *(each for role in roles for each in role),
            *(each for life in made for each in life.others()),
        ]
        self.cluster.apply(self.namespace, *objects)
        tokens = [
            asyncio.to_thread(accounts.token, self.cluster, self.namespace, life.account) for life in made
        ]
        for life, token in zip(made, await asyncio.gather(*tokens), strict=True):
            accounts.kubeconfig(self.cluster, life.world.kubeconfig, token)
        ends = await asyncio.gather(
            *(life.live() if whole else life.youth() for life in made), return_exceptions=True
        )
        return {life.account: _words(end) for life, end in zip(made, ends, strict=True)}

    async def end(self) -> None:
        for world in self.worlds:
            await world.end()

    def _life(self, account: str) -> Life:
        kubeconfig = self.folder / f"{account}.kubeconfig"
        world = KubernetesGroups(kubeconfig, self.namespace, self.image, self.folder / account)
        # A pod on a node that does not exist: nobody ever tells that it has ended.
        world.add("lost", pod_template={"spec": {"nodeName": "no-such-node"}})
        self.worlds.append(world)
        return Life(account, world, first_job=10 * len(self.worlds))


def _words(end: object) -> str:
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
async def lives(cluster: Cluster, namespace: str, program_image: str, tmp_path: Path) -> Any:
    made = Lives(cluster, namespace, program_image, tmp_path)
    yield made
    await made.end()


async def test_the_role_is_enough_for_a_whole_life(lives: Lives, caplog: pytest.LogCaptureFixture) -> None:
    assert await lives.live({"whole": RIGHTS}) == {"whole": ""}
    assert "forbidden" not in caplog.text
    assert "Traceback" not in caplog.text
    left = lives.cluster.kubectl("get", "pods,services", "-n", lives.namespace, "-o", "name").split()
    assert left == ["service/program-15-master-service"]  # the stranger's


async def test_without_any_right_of_the_role_something_is_denied(
    lives: Lives, caplog: pytest.LogCaptureFixture
) -> None:
    def without(right: Right) -> str:
        return "without-" + "-".join(right).replace("/", "-")

    rights = {without(right): [each for each in RIGHTS if each != right] for right in RIGHTS}
    ends = await lives.live(rights, whole=False)
    denied: dict[str, set[Right]] = {account: set() for account in ends}
    for account, verb, resource in _DENIAL.findall("\n".join([caplog.text, *ends.values()])):
        denied[account].add((verb, resource))
    assert denied == {without(right): {right} for right in RIGHTS}


def test_with_the_role_nothing_else_may_be_done(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    cluster.apply(namespace, *accounts.account("whole", ROLE["rules"]), *accounts.account("nobody", []))
    ours, anybodys = (_may_do(cluster, namespace, name, tmp_path) for name in ("whole", "nobody"))
    assert anybodys <= ours
    assert ours - anybodys == {("", *right) for right in RIGHTS}


FORBIDDEN = [
    # Who may run programs in pods, or look over a shoulder, is more than a tracker.
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


def test_with_the_role_others_are_left_in_peace(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    cluster.apply(namespace, *accounts.account("whole", ROLE["rules"]))
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
    """Everything that the account may do in the namespace: group, verb and resource."""
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
    """What the API server answers to reviews, asked by whom the kubeconfig is of."""
    stdin = json.dumps({"apiVersion": "v1", "kind": "List", "items": reviews})
    command = ("--kubeconfig", str(kubeconfig), "create", "-f", "-", "-o", "json")
    text, answers, at = cluster.kubectl(*command, stdin=stdin), [], 0
    while at < len(text):  # one after the other, and a list of them in later versions
        answer, at = json.JSONDecoder().raw_decode(text, at)
        answers += [each["status"] for each in answer.get("items", [answer])]
        at += len(text[at:]) - len(text[at:].lstrip())
    return answers

"""The ranks of pods are looked at from outside, for real, if the service may do so."""

import sys
from pathlib import Path

import pytest

from job_tracker.domain.group import Phase
from job_tracker.domain.job import Job
from tests.support import accounts
from tests.support.backends import KubernetesGroups, printed, started
from tests.support.inspections import inspected
from tests.support.jobs import job
from tests.support.place import Place

RULES = accounts.rules_in("deploy/base/rbac.yaml")
MORE = accounts.rules_in("deploy/optional/stacks/rbac.yaml")


@pytest.fixture
def frozen(world: KubernetesGroups) -> Job:
    """A job whose rank 1 stops itself. The file of py-spy is mounted into its pods."""
    spy = str(Path(sys.executable).with_name("py-spy"))
    program = "import os, signal, time\nif os.environ['RANK'] == '1': os.kill(os.getpid(), signal.SIGSTOP)\n"
    mount = {"name": "py-spy", "mountPath": "/usr/local/bin/py-spy", "readOnly": True}
    template = {
        "spec": {
            "shareProcessNamespace": True,  # as process 1, it would ignore the signal
            "volumes": [{"name": "py-spy", "hostPath": {"path": spy, "type": "File"}}],
            "containers": [{"name": "training", "volumeMounts": [mount]}],
        }
    }
    world.add("program", "python3", "-c", f"{program}time.sleep(1e6)", pod_template=template)
    return job(instances=2)


async def test_a_frozen_pod_is_seen_to_be_stopped(
    world: KubernetesGroups, place: Place, frozen: Job, tmp_path: Path
) -> None:
    place.apply(*accounts.account("looks", [*RULES, *MORE]))
    token = accounts.token(place.cluster, place.namespace, "looks")
    world.kubeconfig = accounts.kubeconfig(place.cluster, tmp_path / "kubeconfig", token)
    backend = world.open()
    running = await started(backend, frozen)
    assert [rank.phase for rank in running.statuses] == [Phase.RUNNING] * 2
    found = await inspected(
        *(backend, frozen.group, {0, 1, 2}),
        lambda found: bool(found[0][0].stacks and found[1][0].stacks and found[1][0].is_stopped),
    )
    assert [[each.is_stopped for each in found[rank]] for rank in (0, 1, 2)] == [[False], [True], [False]]
    assert "<string>:2 in <module>" in found[1][0].stacks
    assert found[2][0].standing == "could not be looked at: rank 2 does not run"
    assert "rank 1 does not answer; its process " in await printed(backend, frozen.group, 1)


async def test_without_the_right_there_is_a_note(
    world: KubernetesGroups, place: Place, frozen: Job, tmp_path: Path
) -> None:
    place.apply(*accounts.account("denied", RULES))
    token = accounts.token(place.cluster, place.namespace, "denied")
    world.kubeconfig = accounts.kubeconfig(place.cluster, tmp_path / "kubeconfig", token)
    backend = world.open()
    await started(backend, frozen)
    note = "could not be looked at: the service may not run commands in pods (see deploy/optional/stacks)"
    found = await inspected(backend, frozen.group, {1}, lambda found: found[1][0].standing == note)
    assert found[1][0].standing == note

"""Outages of parts of the cluster and of the service, temporary and permanent."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from job_tracker.backends.kubernetes import stopping
from job_tracker.backends.kubernetes.client import Patience
from job_tracker.domain.diagnosis import Category
from job_tracker.domain.errors import BackendUnavailable
from job_tracker.domain.group import Phase
from tests.support.backends import KubernetesGroups, groups_of, printed, seen, started, text_of
from tests.support.jobs import job
from tests.support.patience import PATIENCE
from tests.support.place import Place

FOREVER = {"RUN_SECONDS": "forever"}
SHORT = timedelta(seconds=1)


async def test_a_log_is_followed_across_a_restart_of_the_api_server_without_gaps(
    world: KubernetesGroups, place: Place
) -> None:
    count = "import time\nfor i in range(80):\n    print(i, flush=True); time.sleep(0.1)"
    world.add("program", "python3", "-c", count)
    backend = world.open()
    await started(backend, job())
    following = asyncio.create_task(text_of(backend.logs(job().group, 0, follow=True)))
    await asyncio.sleep(1)
    await asyncio.to_thread(place.cluster.kill, "apiserver")
    await asyncio.to_thread(place.cluster.start, "apiserver")
    assert (await following).split() == [str(number) for number in range(80)]


async def test_a_slow_api_server_causes_no_errors(world: KubernetesGroups, place: Place) -> None:
    backend = world.open()
    await groups_of(backend)
    await asyncio.to_thread(place.cluster.slow, "apiserver", 5)
    await started(backend, job(FOREVER, instances=3))
    end = await backend.stop(job().group, SHORT)
    assert end is not None
    assert [rank.phase for rank in end.statuses] == [Phase.STOPPED] * 3
    await asyncio.to_thread(place.cluster.slow, "apiserver", None)
    assert place.left() == []


async def test_a_frozen_api_server_may_have_executed_unconfirmed_requests(
    world: KubernetesGroups, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = world.open()
    await groups_of(backend)
    asked = job(FOREVER, instances=2)
    monkeypatch.setattr(backend.client, "_patience", Patience(total_seconds=PATIENCE))
    with place.cluster.paused("apiserver"):
        launching = asyncio.create_task(backend.launch(asked))
        await asyncio.sleep(12)  # the first try has timed out and waits in the server's socket
    await launching
    await started(backend, asked)
    await backend.stop(job().group, SHORT)
    assert place.left() == []


async def test_a_stop_during_which_the_api_server_freezes_is_repeated_and_loses_no_log(
    world: KubernetesGroups, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def marked(*_: Any) -> bool:  # just before the server froze
        return True

    async def deleted(*_: Any) -> None:
        pytest.fail("the frozen server may execute a deletion later, and the log has not been read")

    monkeypatch.setattr(stopping, "_ENDED_LOG_SECONDS", 1.0)
    backend = world.open()
    asked = job({"PRINT": "hello"})
    await backend.launch(asked)
    await seen(backend, asked.group, lambda group: group.has_ended)
    with place.cluster.paused("apiserver"), monkeypatch.context() as frozen:
        frozen.setattr(backend.client, "_patience", Patience(total_seconds=1.0))
        frozen.setattr(backend.client, "delete", deleted)
        frozen.setattr(stopping.Stopper, "_mark_stopping", marked)
        with pytest.raises(BackendUnavailable):
            await backend.stop(asked.group, SHORT)
    await backend.stop(asked.group, SHORT)
    assert await text_of(backend.logs(asked.group, 0)) == "hello\n"
    assert place.left() == []


async def test_the_pod_of_a_lost_rank_is_not_deleted_while_the_api_server_is_frozen(
    world: KubernetesGroups, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deleted(*_: Any) -> None:
        pytest.fail("the frozen server may execute a deletion later, and the log has not been read")

    monkeypatch.setattr(stopping, "_LOG_SECONDS", 1.0)
    backend = world.open()
    asked = job({"PRINT": "hello"})
    await backend.launch(asked)
    await seen(backend, asked.group, lambda group: group.has_ended)
    pod = place.cluster.get(place.namespace, "pod", "program-1-master")
    with place.cluster.paused("apiserver"), monkeypatch.context() as frozen:
        frozen.setattr(backend.client, "_patience", Patience(total_seconds=1.0))
        frozen.setattr(backend.client, "delete", deleted)
        with pytest.raises(BackendUnavailable):
            await backend._stopper.remove_lost(asked.group, pod)
    await backend._stopper.remove_lost(asked.group, pod)
    assert await text_of(backend.logs(asked.group, 0)) == "hello\n"


async def test_pods_on_a_lost_node_are_removed_after_their_grace_period(
    world: KubernetesGroups, place: Place
) -> None:
    backend = world.open()
    await started(backend, job({**FOREVER, "PRINT": "hello"}, instances=2))
    await asyncio.to_thread(place.cluster.stop, "kubelet")
    end = await backend.stop(job().group, SHORT)
    assert end is not None
    assert [rank.phase for rank in end.statuses] == [Phase.STOPPED] * 2
    assert place.left() == []
    await asyncio.to_thread(place.cluster.start, "kubelet")


async def test_a_lost_node_fails_its_groups_and_is_named_as_the_cause(
    world: KubernetesGroups, place: Place
) -> None:
    backend = world.open(lost_node_grace=timedelta(seconds=2))
    await started(backend, job(FOREVER, instances=2))
    await asyncio.to_thread(place.cluster.stop, "kubelet")
    end = await seen(backend, job().group, lambda o: o.first_failure is not None)
    assert end.first_failure is not None
    assert (end.first_failure.category, end.first_failure.retryable) == (Category.NODE_LOST, True)
    await backend.stop(job().group, SHORT)
    assert place.left() == []
    await asyncio.to_thread(place.cluster.start, "kubelet")


async def test_a_stop_of_a_killed_service_is_no_failure(world: KubernetesGroups, place: Place) -> None:
    ignore = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('up', flush=True)\n"
    ignore += "time.sleep(1000)"
    world.add("program", "python3", "-c", ignore)
    first = world.open()
    await started(first, job(instances=3))
    for rank in range(3):
        await printed(first, job().group, rank)
    stopping = asyncio.create_task(first.stop(job().group, timedelta(minutes=5)))
    while (
        "deletionTimestamp" not in place.cluster.get(place.namespace, "pod", "program-1-master")["metadata"]
    ):
        await asyncio.sleep(0.05)
    await first.close()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    second = world.open()
    found = (await groups_of(second))[job().group]
    assert found.first_failure is None
    end = await second.stop(job().group, SHORT)
    assert end is not None
    assert [rank.phase for rank in end.statuses] == [Phase.STOPPED] * 3
    assert await text_of(second.logs(job().group, 2)) == "up\n"
    assert place.left() == []


async def test_a_service_without_pods_is_removed(world: KubernetesGroups, place: Place) -> None:
    first = world.open()
    await started(first, job(FOREVER, instances=2))
    place.kubectl("delete", "pods", "--all", "--cascade=false", "--force", "--grace-period=0")
    await first.close()
    orphan = ["service/program-1-master-service"]
    assert place.left() in ([], orphan)
    second = world.open()
    assert await groups_of(second) == {}
    await second.sweep(datetime.now(UTC))
    assert place.left() == []


async def test_an_end_during_an_outage_of_the_api_server_is_observed_later(
    world: KubernetesGroups, place: Place
) -> None:
    backend = world.open()
    await started(backend, job({"RUN_SECONDS": "4"}, instances=2))
    await asyncio.to_thread(place.cluster.stop, "apiserver")
    at = time.monotonic()
    with pytest.raises(BackendUnavailable):
        await backend.launch(job(FOREVER, job_id=2))
    with pytest.raises(BackendUnavailable):
        await groups_of(world.open())
    assert set(await groups_of(backend)) == {job().group}  # the last known state
    await asyncio.sleep(max(0, at + 30 - time.monotonic()))
    await asyncio.to_thread(place.cluster.start, "apiserver")
    end = await seen(backend, job().group, lambda o: o.has_ended)
    assert [rank.phase for rank in end.statuses] == [Phase.SUCCEEDED] * 2
    await backend.stop(job().group, SHORT)
    assert place.left() == []

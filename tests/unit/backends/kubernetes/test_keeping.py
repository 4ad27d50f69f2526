"""The keeper's calls to the API server, and its reaction to refusals."""

import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from job_tracker.backends.kubernetes.cache import PodCache
from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.backends.kubernetes.keeping import Keeper
from job_tracker.backends.shared.labels import group_annotations, group_labels
from tests.support.jobs import NOON, job
from tests.support.scripted_api import Scripted, pod, pods, says, status

GROUP = job().group


def kept(name: str, until: str | None) -> dict[str, Any]:
    annotation = {} if until is None else {"training-service/kept-until": until}
    return pod(
        name, 1, labels=group_labels(job(), "test"), annotations={**group_annotations(job()), **annotation}
    )


@pytest.fixture
async def keeper(client: KubernetesClient) -> AsyncIterator[Keeper]:
    cache = PodCache(client, "app=x", lambda _: None)
    yield Keeper(client, cache, instance="test")
    await cache.close()


async def test_pods_of_forgotten_groups_are_removed_early_with_one_list(
    keeper: Keeper, server: Scripted
) -> None:
    later = (NOON + timedelta(hours=1)).isoformat()
    server.answers = [pods(1, kept("a", later), kept("b", later)), says({}), says({})]
    await keeper.sweep(NOON, [GROUP])
    assert [request.split()[0] for request in server.requests] == ["GET", "DELETE", "DELETE"]


async def test_a_forgotten_group_without_kept_pods_is_fine(keeper: Keeper, server: Scripted) -> None:
    server.answers = [pods(1)]
    await keeper.sweep(NOON, [GROUP])
    assert len(server.requests) == 1


async def test_only_pods_whose_time_is_over_are_removed(keeper: Keeper, server: Scripted) -> None:
    times = {
        "before": NOON - timedelta(hours=1),
        "now": NOON,
        "later": NOON + timedelta(seconds=1),
    }
    found = [kept(name, until.isoformat()) for name, until in times.items()]
    server.answers = [pods(1, *found, kept("broken", "soon"), pod("foreign", 1)), *[says({})] * 3]
    await keeper.sweep(NOON)
    removed = {request.rpartition("/")[2].strip("?") for request in server.requests[1:]}
    assert removed == {"before", "now", "broken"}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (status(404, "NotFound"), ""),
        (status(409, "Conflict"), ""),
        (status(403, "Forbidden", "may not patch"), "may not patch"),
        (status(422, "Invalid", "a policy is against it"), "a policy is against it"),
    ],
)
async def test_a_pod_that_cannot_be_kept_is_left_for_deletion(
    keeper: Keeper, server: Scripted, answer: Any, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers = [answer]
    with caplog.at_level(logging.WARNING):
        assert not await keeper.keep(pod("a", 1), NOON)
    assert (message in caplog.text) if message else not caplog.text

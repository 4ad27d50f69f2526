"""What the keeper of pods asks the API server for, and what it makes of a refusal."""

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
    told = {} if until is None else {"training-service/kept-until": until}
    return pod(name, 1, labels=group_labels(job(), "test"), annotations={**group_annotations(job()), **told})


@pytest.fixture
async def keeper(client: KubernetesClient) -> AsyncIterator[Keeper]:
    cache = PodCache(client, "app=x", lambda _: None)
    yield Keeper(client, cache, instance="test")
    await cache.close()


async def test_a_group_of_which_nothing_is_kept_is_not_asked_for(keeper: Keeper, server: Scripted) -> None:
    server.answers = [pods(1)]
    await keeper.sweep(NOON)
    await keeper.discard(GROUP)
    assert len(server.requests) == 1


async def test_a_group_that_was_kept_since_the_last_sweep_is_asked_for(
    keeper: Keeper, server: Scripted
) -> None:
    server.answers = [pods(1), says(pod("a", 2)), pods(2, kept("a", None)), says({})]
    await keeper.sweep(NOON)
    assert await keeper.keep(GROUP, pod("a", 1), NOON)
    await keeper.discard(GROUP)
    assert [request.split()[0] for request in server.requests] == ["GET", "PATCH", "GET", "DELETE"]


async def test_only_what_is_over_is_removed(keeper: Keeper, server: Scripted) -> None:
    times = {
        "before": NOON - timedelta(hours=1),
        "now": NOON,
        "later": NOON + timedelta(seconds=1),
    }
    found = [kept(name, until.isoformat()) for name, until in times.items()]
    server.answers = [pods(1, *found, kept("broken", "soon"), pod("stranger", 1)), *[says({})] * 3]
    await keeper.sweep(NOON)
    removed = {request.rpartition("/")[2].strip("?") for request in server.requests[1:]}
    assert removed == {"before", "now", "broken"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (status(404, "NotFound"), ""),
        (status(409, "Conflict"), ""),
        (status(403, "Forbidden", "may not patch"), "may not patch"),
        (status(422, "Invalid", "a policy is against it"), "a policy is against it"),
    ],
)
async def test_what_cannot_be_kept_is_left_to_be_deleted(
    keeper: Keeper, server: Scripted, answer: Any, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers = [answer]
    with caplog.at_level(logging.WARNING):
        assert not await keeper.keep(GROUP, pod("a", 1), NOON)
    assert (said in caplog.text) if said else not caplog.text

"""The tokens of an attempt in a Secret, for real: pods read them, and they are deleted with the group."""

import asyncio
from datetime import timedelta

from job_tracker.domain.group import Phase
from tests.support.backends import KubernetesGroups, seen, text_of
from tests.support.jobs import job
from tests.support.patience import PATIENCE
from tests.support.place import Place
from tests.support.programs import UNTIL_READ


async def test_pods_read_tokens_from_a_secret_that_is_deleted_with_them(
    world: KubernetesGroups, place: Place
) -> None:
    program = "import os; print(os.environ['GROUP_TOKEN'], os.environ['REPORT_TOKEN'], flush=True)\n"
    world.add("program", "python3", "-c", f"{UNTIL_READ}{program}until_read(1)")
    world.tell = lambda _: {"GROUP_TOKEN": "of-the-group", "REPORT_TOKEN": "of-reports"}
    backend, asked = world.open(token_secrets=True), job(instances=2)
    plan = world.plan(asked, token_secrets=True)
    await backend.launch(asked)
    await backend.launch(asked)
    await seen(backend, asked.group, lambda found: found.has_ended)
    assert plan.secret is not None
    name = plan.secret["metadata"]["name"]
    assert name in place.kubectl("get", "secrets", "-o", "name")
    assert "of-the-group" not in place.kubectl("get", "pods", "-o", "yaml")
    end = await backend.stop(asked.group, timedelta(seconds=1))
    assert end is not None
    assert [rank.phase for rank in end.statuses] == [Phase.SUCCEEDED] * 2
    for rank in (0, 1):
        assert await text_of(backend.logs(asked.group, rank)) == "of-the-group of-reports\n"
    async with asyncio.timeout(PATIENCE):
        while name in place.kubectl("get", "secrets", "-o", "name"):
            await asyncio.sleep(0.5)

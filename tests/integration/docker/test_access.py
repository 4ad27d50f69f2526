"""The ranks of containers are looked at from outside, for real."""

import sys
from pathlib import Path

from job_tracker.domain.group import Phase
from tests.support.backends import DockerGroups, printed, started
from tests.support.inspections import inspected
from tests.support.jobs import job


async def test_a_frozen_container_is_seen_to_be_stopped(world: DockerGroups) -> None:
    spy = str(Path(sys.executable).with_name("py-spy"))
    program = "import os, signal, time\nif os.environ['RANK'] == '1': os.kill(os.getpid(), signal.SIGSTOP)\n"
    mounted = {"source": spy, "mount_path": "/usr/local/bin/py-spy", "read_only": True}
    world.add("program", "python3", "-c", f"{program}time.sleep(1e6)", volumes=[mounted])
    backend = world.open()
    running = await started(backend, job(instances=2))
    assert [rank.phase for rank in running.statuses] == [Phase.RUNNING] * 2
    found = await inspected(
        *(backend, job().group, {0, 1, 2}),
        lambda found: bool(found[0][0].stacks and found[1][0].stacks and found[1][0].is_stopped),
    )
    assert [[each.is_stopped for each in found[rank]] for rank in (0, 1, 2)] == [[False], [True], [False]]
    assert "<string>:2 in <module>" in found[1][0].stacks
    assert found[2][0].standing == "could not be looked at: rank 2 does not run"
    assert "rank 1 does not answer; its process " in await printed(backend, job().group, 1)

"""No job fails because of a temporary shortage of the machine, and no job is forgotten."""

import errno
import os
import resource
import subprocess
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from job_tracker.domain.errors import NoRoom
from job_tracker.domain.group import Phase
from tests.support.backends import ProcessGroups, seen
from tests.support.jobs import job
from tests.support.patience import PATIENCE
from tests.support.server import server
from training_service._generated import training_service_pb2 as pb

if TYPE_CHECKING:
    from tests.support.server import Server
else:
    Server = Any

__all__ = ["server"]

JOBS = 12


@pytest.mark.parametrize("most", [44, 64])
def test_every_job_succeeds_although_descriptors_are_scarce(
    server: Server, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    spawn: Any = subprocess.Popen

    def spawn_limited(*args: Any, **options: Any) -> Any:
        return spawn(
            *args, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)), **options
        )

    monkeypatch.setattr(subprocess, "Popen", spawn_limited)
    with server.start("--capacity", "24") as client:
        monkeypatch.undo()
        jobs = [
            client.submit("program", "1", "v1", instances=2, parameters={"RUN_SECONDS": "0.5"})
            for _ in range(JOBS)
        ]
        ended = [client.wait(job_id, timeout=PATIENCE) for job_id in jobs]
    assert [(each.status, each.attempt) for each in ended] == [(pb.succeed, 1)] * JOBS


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
async def test_a_full_disk_is_reported_as_no_room(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], check=True)
    world = ProcessGroups(folder / "groups")
    backend = world.open()
    try:
        filler = folder / "filler"
        filler.write_bytes(b"")
        with suppress(OSError), filler.open("ab", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        with pytest.raises(NoRoom, match="the disk is full; free some space"):
            await backend.launch(job())
        filler.unlink()
        await backend.launch(job())
        end = await seen(backend, job().group, lambda o: o.has_ended)
        assert [rank.status.phase for rank in end.ranks] == [Phase.SUCCEEDED]
        await backend.stop(job().group, timedelta(0))
    finally:
        await world.end()
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.EDQUOT])
async def test_a_temporary_error_at_the_start_of_a_supervisor_is_reported_as_no_room(
    world: ProcessGroups, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise OSError(number, os.strerror(number))

    backend = world.open()
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_spawn", refuse)
        with pytest.raises(NoRoom):
            await backend.launch(job())
    await backend.launch(job())
    end = await seen(backend, job().group, lambda o: o.has_ended)
    assert [rank.status.phase for rank in end.ranks] == [Phase.SUCCEEDED]
    await backend.stop(job().group, timedelta(0))

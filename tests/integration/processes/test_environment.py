"""The environment of a process, which has only the specified variables."""

import json
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from job_tracker.domain.diagnosis import Category
from job_tracker.domain.errors import LaunchFailed
from tests.support.backends import PATH, ProcessGroups, printed, seen, text_of
from tests.support.jobs import job
from tests.support.patience import PATIENCE

SHOW = "import json, os; print(json.dumps({'env': dict(os.environ), 'cwd': os.getcwd()}))"


async def quoted(world: ProcessGroups, instances: int = 1, **settings: Any) -> list[dict[str, Any]]:
    world.add("program", "python", "-I", "-c", SHOW)
    backend = world.open(**settings)
    await backend.launch(job({"LR": "4"}, instances=instances))
    await seen(backend, job().group, lambda o: o.has_ended)
    texts = [await text_of(backend.logs(job().group, rank)) for rank in range(instances)]
    await backend.stop(job().group, timedelta(0))
    return [json.loads(text) for text in texts]


async def test_a_process_gets_exactly_these_variables(
    world: ProcessGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVICE", "x")
    monkeypatch.setenv("LANG", "C.UTF-8")
    found = (await quoted(world, instances=3, inherit=("LANG", "NOT_SET")))[2]
    folder = world.root / "live" / "program-1" / "program-1-2-worker"
    port = found["env"].pop("MASTER_PORT")
    assert found["env"].pop("PET_MASTER_PORT") == port
    assert 20000 <= int(port) <= 29999
    found["env"].pop("LC_CTYPE", None)  # set by Python (PEP 538)
    assert found["env"] == {
        "LR": "4",
        "JOB_ID": "1",
        "JOB_ATTEMPT": "1",
        "ALGORITHM_NAME": "program",
        "TRAINING_DATASET_ID": "1",
        "TRAINING_DATASET_VERSION_HASH": "v1",
        "TRAINING_DATA_URI": "/storage/versionedDatasets/1/v1",
        "MODEL_NAME": "a-model",
        "MODEL_URI": "/storage/models/a-model/1",
        "CHECKPOINT_URI": "/storage/checkpoints/1",
        "WORLD_SIZE": "3",
        "RANK": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "PET_NNODES": "3",
        "PET_NODE_RANK": "2",
        "PET_NPROC_PER_NODE": "1",
        "PET_MASTER_ADDR": "127.0.0.1",
        "OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // 3)),
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "LANG": "C.UTF-8",
        "PATH": PATH,
        "HOME": str(folder / "work"),
        "TMPDIR": str(folder / "tmp"),
    }
    assert found["cwd"] == str(folder / "work")


async def test_each_rank_has_its_own_folder_and_all_share_one_master(world: ProcessGroups) -> None:
    found = await quoted(world, instances=3)
    assert len({each["cwd"] for each in found}) == 3
    assert len({each["env"]["MASTER_PORT"] for each in found}) == 1
    assert [each["env"]["RANK"] for each in found] == ["0", "1", "2"]


async def test_concurrent_groups_have_different_ports(world: ProcessGroups) -> None:
    backend = world.open()
    for number in (1, 2, 3):
        await backend.launch(job({"RUN_SECONDS": "forever"}, job_id=number))
    ports = {json.loads(path.read_text())["ports"][0] for path in world.root.glob("live/*/group.json")}
    assert len(ports) == 3


async def test_other_users_cannot_read_files_of_a_group(world: ProcessGroups) -> None:
    backend = world.open()
    await backend.launch(job({"RUN_SECONDS": "forever"}))
    [folder] = world.root.glob("live/*")
    assert folder.stat().st_mode & 0o077 == 0
    [command] = folder.glob("*/command")
    assert command.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("half", ["no record", "no supervisors", "one rank"])
async def test_an_interrupted_launch_is_completed(world: ProcessGroups, half: str, tmp_path: Path) -> None:
    first = world.open()
    asked = job({"RUN_SECONDS": "forever", "PRINT": "up"}, instances=2)
    folder = world.root / "live" / asked.group.name
    if half == "no record":
        folder.mkdir(parents=True)  # killed before group.json was written
    else:
        launched = await first.launch(asked)
        assert len(launched.ranks) == 2
        await first.close()
        gone = range(2) if half == "no supervisors" else [1]
        await _undo_start(folder, asked.group.name, list(gone))
    second = world.open()
    observation = await second.launch(asked)
    assert [rank.status.phase.value for rank in observation.ranks] == ["running"] * 2
    for rank in range(2):
        assert await printed(second, asked.group, rank) == "up\n"


async def _undo_start(folder: Path, group: str, ranks: list[int]) -> None:
    """Restore the state of a service that was killed before it started these ranks."""
    import shutil

    import psutil

    for rank in ranks:
        place = folder / (f"{group}-master" if rank == 0 else f"{group}-{rank}-worker")
        pid = json.loads((place / "process.json").read_text())["supervisor"]
        supervisor = psutil.Process(pid)
        children = supervisor.children(recursive=True)
        supervisor.kill()
        psutil.wait_procs([supervisor, *children], timeout=PATIENCE)
        shutil.rmtree(place)


async def test_ranks_do_not_inherit_ignored_signals(world: ProcessGroups) -> None:
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)"
    world.add("program", "python", "-c", code)
    backend = world.open()
    ours = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        await backend.launch(job())
    finally:
        signal.signal(signal.SIGINT, ours)
    assert await printed(backend, job().group) == "True\n"


async def test_a_missing_virtual_environment_fails_the_launch(world: ProcessGroups, tmp_path: Path) -> None:
    folder = tmp_path / "nowhere"
    world.add("program", "python", "-c", "pass", virtual_environment=folder)
    with pytest.raises(LaunchFailed, match=f"The virtual environment '{folder}' does not exist") as raised:
        await world.open().launch(job())
    assert raised.value.diagnosis.category is Category.COMMAND_NOT_FOUND

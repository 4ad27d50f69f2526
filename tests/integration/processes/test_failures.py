"""All failures of processes, provoked for real, and the diagnoses that users see."""

import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from job_tracker.backends.process import rank as rank_module
from job_tracker.backends.process.backend import ProcessBackend
from job_tracker.backends.process.files import RankFolder
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.errors import BackendUnavailable, LaunchFailed
from job_tracker.domain.group import Phase
from tests.support.backends import ProcessGroups, groups_of, printed, seen
from tests.support.jobs import NOON, job
from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from tests.support.processes import rank_process

MIB = 1 << 20


async def run_to_failure(backend: ProcessBackend) -> Diagnosis:
    await backend.launch(job())
    end = await seen(backend, job().group, lambda o: o.first_failure is not None)
    assert end.first_failure is not None
    return end.first_failure


async def test_the_end_of_the_log_is_in_the_diagnosis_of_a_crash(world: ProcessGroups) -> None:
    world.add("program", "python", "-c", "raise RuntimeError('the labels do not fit')")
    diagnosis = await run_to_failure(world.open())
    assert diagnosis.category is Category.CRASHED
    assert diagnosis.summary == "Rank 0 exited with code 1."
    assert diagnosis.detail.endswith("RuntimeError: the labels do not fit")


async def test_the_diagnosis_of_a_multi_process_rank_has_the_error_and_not_torchruns_report(
    world: ProcessGroups,
) -> None:
    # Only one process prints. The lines of two processes that print at the same time can mix.
    program = (
        "import os, time\n"
        "if os.environ['LOCAL_RANK'] == '1': time.sleep(1000)\n"
        "raise MemoryError('the model is too large')"
    )
    world.add("program", "python", "-c", program, nproc_per_node=2)
    diagnosis = await run_to_failure(world.open())
    assert diagnosis.category is Category.OUT_OF_MEMORY
    assert "MemoryError: the model is too large" in diagnosis.detail
    assert "torch" not in diagnosis.detail


async def test_a_rank_killed_by_hand_is_not_diagnosed_as_a_crash(world: ProcessGroups) -> None:
    world.add("program", "sh", "-c", "echo up; sleep 1000")
    backend = world.open()
    await backend.launch(job())
    await printed(backend, job().group)
    rank_process().kill()
    end = await seen(backend, job().group, lambda o: o.has_ended)
    assert end.first_failure is not None
    assert end.first_failure.category is Category.KILLED
    assert "SIGKILL" in end.first_failure.summary
    assert end.ranks[0].status.exit_code == 128 + signal.SIGKILL


async def test_a_rank_that_exits_as_terminated_is_retryable(
    world: ProcessGroups,
) -> None:
    """Another program sent SIGTERM: the rank wrote a checkpoint, and its exit code reports the signal."""
    world.add("program", "sh", "-c", "exit 143")
    diagnosis = await run_to_failure(world.open())
    assert (diagnosis.category, diagnosis.retryable) == (Category.KILLED, True)
    assert "SIGTERM" in diagnosis.summary


async def test_a_crash_in_native_code_names_the_signal(world: ProcessGroups) -> None:
    world.add("program", "python", "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    diagnosis = await run_to_failure(world.open())
    assert (diagnosis.category, "SIGSEGV" in diagnosis.summary) == (Category.CRASHED, True)


async def test_a_crash_in_native_code_shows_where_the_program_called_it(world: ProcessGroups) -> None:
    """The program does not use trainer_kit."""
    world.add("program", "python", "-c", "import ctypes\ndef read():\n    ctypes.string_at(0)\nread()")
    diagnosis = await run_to_failure(world.open())
    assert diagnosis.category is Category.CRASHED
    assert "SIGSEGV" in diagnosis.summary
    assert "native code" in diagnosis.resolution
    assert "line 3 in read" in diagnosis.detail


async def test_a_missing_program_is_named(world: ProcessGroups) -> None:
    world.add("program", "no-such-interpreter", "train.py")
    diagnosis = await run_to_failure(world.open())
    assert diagnosis.category is Category.COMMAND_NOT_FOUND
    assert "'no-such-interpreter'" in diagnosis.summary
    assert "process.command" in diagnosis.resolution


async def test_a_script_with_a_missing_interpreter_is_named(world: ProcessGroups, tmp_path: Path) -> None:
    script = tmp_path / "train"
    script.write_text("#!/no/such/python\n")
    script.chmod(0o755)
    world.add("program", str(script))
    assert (await run_to_failure(world.open())).category is Category.COMMAND_NOT_FOUND


async def test_a_program_that_is_not_executable_is_named(world: ProcessGroups, tmp_path: Path) -> None:
    script = tmp_path / "train"
    script.write_text("echo")
    world.add("program", str(script))
    diagnosis = await run_to_failure(world.open())
    assert diagnosis.category is Category.COMMAND_NOT_EXECUTABLE
    assert str(script) in diagnosis.summary


async def test_memory_beyond_the_configured_limit_is_out_of_memory(world: ProcessGroups) -> None:
    world.add("program", "python", "-c", "b'x' * (1 << 30)", memory_limit_bytes=256 * MIB)
    diagnosis = await run_to_failure(world.open())
    assert diagnosis.category is Category.OUT_OF_MEMORY
    assert "BATCH_SIZE" in diagnosis.resolution


EAT = 'python -c "x = bytearray(300 << 20)"'


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """Create a memory control group of 64 MiB, in either version of the hierarchy."""
    root = Path("/sys/fs/cgroup")
    version_1 = (root / "memory").is_dir()
    group = (root / "memory" if version_1 else root) / f"training-service-test-{os.getpid()}"
    group.mkdir()
    limit = "memory.limit_in_bytes" if version_1 else "memory.max"
    (group / limit).write_text(str(64 * MIB))
    yield group
    group.rmdir()


@pytest.mark.skipif(not os.access("/sys/fs/cgroup", os.W_OK), reason="only root can create control groups")
async def test_a_kill_while_other_processes_run_out_of_memory_is_not_out_of_memory(
    world: ProcessGroups, small_cgroup: Path
) -> None:
    elsewhere = f"(echo $(exec sh -c 'echo $PPID') > {small_cgroup}/cgroup.procs; {EAT}) & wait"
    world.add("program", "sh", "-c", f"{elsewhere}; kill -KILL $$")
    diagnosis = await run_to_failure(world.open())
    assert diagnosis.category is Category.KILLED


@pytest.mark.skipif(not os.access("/sys/fs/cgroup", os.W_OK), reason="only root can create control groups")
async def test_a_kill_by_the_kernel_for_memory_is_out_of_memory(
    world: ProcessGroups, small_cgroup: Path
) -> None:
    # Include the supervisor, as in a container.
    enter = f"for pid in $PPID $$; do echo $pid > {small_cgroup}/cgroup.procs; done"
    world.add("program", "sh", "-c", f"{enter}; exec {EAT}")
    diagnosis = await run_to_failure(world.open())
    assert diagnosis.category is Category.OUT_OF_MEMORY
    assert "kernel" in diagnosis.summary


async def test_a_port_in_use_is_retryable(world: ProcessGroups) -> None:
    world.add("program", "python", "-c", "raise OSError(98, 'Address already in use')")
    diagnosis = await run_to_failure(world.open())
    assert (diagnosis.category, diagnosis.retryable) == (Category.PORT_IN_USE, True)


async def test_a_folder_that_cannot_be_written_fails_the_launch(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way of a folder")
    world = ProcessGroups(tmp_path / "file" / "groups")
    backend = world.open()
    with pytest.raises(LaunchFailed) as raised:
        await backend.launch(job())
    assert raised.value.diagnosis.category is Category.STORAGE_NOT_WRITABLE
    assert str(tmp_path / "file") in raised.value.diagnosis.summary
    assert await groups_of(backend) == {}


async def test_a_partly_failed_launch_has_a_diagnosis_and_its_stop_can_be_repeated(
    world: ProcessGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add("program", "sleep", "1000")
    backend = world.open()
    spawn, denied = rank_module.spawn_supervisor, OSError(errno.EACCES, os.strerror(errno.EACCES))

    def spawn_one(folder: RankFolder, *others: Any) -> int:
        if not folder.path.name.endswith("master"):
            raise denied
        return spawn(folder, *others)

    monkeypatch.setattr(rank_module, "spawn_supervisor", spawn_one)
    with pytest.raises(LaunchFailed) as raised:
        await backend.launch(job(instances=2))
    assert raised.value.diagnosis.category is Category.LAUNCH_FAILED
    in_the_way = world.root / "kept"
    in_the_way.touch()
    with pytest.raises(BackendUnavailable, match="cannot be moved"):
        await backend.stop(job().group, timedelta(seconds=1))
    in_the_way.unlink()
    end = await backend.stop(job().group, timedelta(seconds=1))
    assert end is not None
    assert [rank.phase for rank in end.statuses] == [Phase.STOPPED] * 2
    assert await groups_of(backend) == {}


async def test_no_free_port_fails_the_launch(world: ProcessGroups) -> None:
    backend = world.open(first_port=(port := free_port()), last_port=port)
    await backend.launch(job({"RUN_SECONDS": "forever"}, job_id=1))
    with pytest.raises(LaunchFailed) as raised:
        await backend.launch(job(job_id=2))
    assert raised.value.diagnosis.category is Category.NO_FREE_PORT
    assert set(await groups_of(backend)) == {job(job_id=1).group}


async def test_an_algorithm_that_is_no_longer_configured_cannot_be_launched(world: ProcessGroups) -> None:
    with pytest.raises(LaunchFailed) as raised:
        await world.open().launch(job(algorithm="gone"))
    assert raised.value.diagnosis.category is Category.ALGORITHM_GONE


async def test_a_killed_supervisor_takes_its_rank_along_grandchildren_included(world: ProcessGroups) -> None:
    world.add("program", "sh", "-c", "setsid sleep 1000 & echo up; sleep 1000")
    backend = world.open()
    await backend.launch(job(instances=2))
    await printed(backend, job().group, 1)
    supervisor = rank_process(1).parent()
    assert supervisor is not None
    supervisor.kill()
    end = await seen(backend, job().group, lambda o: o.first_failure is not None)
    assert [rank.status.phase for rank in end.ranks] == [Phase.RUNNING, Phase.FAILED]
    assert end.first_failure is not None
    assert (end.first_failure.category, end.first_failure.rank) == (Category.SUPERVISOR_LOST, 1)
    await backend.stop(job().group, timedelta(seconds=1))


async def test_a_supervisor_lost_while_no_service_ran_is_noticed_later(world: ProcessGroups) -> None:
    world.add("program", "sh", "-c", "echo up; sleep 1000")
    first = world.open()
    await first.launch(job())
    await printed(first, job().group)
    supervisor = rank_process().parent()
    assert supervisor is not None
    await first.close()
    supervisor.kill()
    supervisor.wait()
    end = await seen(world.open(), job().group, lambda o: o.has_ended)
    assert end.first_failure is not None
    assert end.first_failure.category is Category.SUPERVISOR_LOST


async def test_the_rank_that_failed_first_is_diagnosed(world: ProcessGroups) -> None:
    other_has_ended = "[ -e ../../program-1-1-worker/exit.json ]"
    wait = f'[ "$RANK" = 1 ] || until {other_has_ended}; do sleep 0.01; done'
    world.add("program", "sh", "-c", f"{wait}; exit $((RANK + 1))")
    backend = world.open()
    await backend.launch(job(instances=2))
    end = await seen(backend, job().group, lambda o: o.has_ended)
    assert end.first_failure is not None
    assert end.first_failure.rank == 1


async def test_a_killed_supervisor_takes_hidden_processes_along(world: ProcessGroups) -> None:
    world.add("program", "sh", "-c", "env -i sh -c 'echo $$; exec sleep 1000' & sleep 1000")
    backend = world.open()
    await backend.launch(job())
    hidden = psutil.Process(int(await printed(backend, job().group)))
    rank_process().parent().kill()  # type: ignore[union-attr]
    end = await seen(backend, job().group, lambda o: o.has_ended)
    assert end.first_failure is not None
    assert end.first_failure.category is Category.SUPERVISOR_LOST
    _, alive = psutil.wait_procs([hidden], PATIENCE)  # process 1 inherits it, and may reap it late
    for left in alive:
        left.kill()
    assert not alive


@pytest.mark.parametrize(
    ("name", "content"),
    [("exit.json", '{"code": 0}'), ("exit.json", "[]"), ("exit.json", "{"), ("process.json", '"me"')],
)
async def test_records_damaged_by_training_fail_only_that_job(
    world: ProcessGroups, name: str, content: str
) -> None:
    world.add("spoiler", "sh", "-c", f"echo up; echo '{content}' > ../{name}; kill -9 $PPID; sleep 1000")
    backend = world.open()
    await backend.launch(job({"RUN_SECONDS": "forever"}, job_id=2))
    await backend.launch(replace(job(), spec=replace(job().spec, algorithm="spoiler")))
    group = replace(job(), spec=replace(job().spec, algorithm="spoiler")).group
    end = await seen(backend, group, lambda o: o.has_ended)
    assert end.first_failure is not None
    assert end.first_failure.category is Category.SUPERVISOR_LOST
    other = world.open()
    assert set(await groups_of(other)) == {group, job(job_id=2).group}
    assert (await seen(other, group, lambda o: o.has_ended)).first_failure is not None


async def test_a_running_rank_without_a_record_is_stopped_and_delays_no_other(
    world: ProcessGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = world.open()
    await first.launch(job({"RUN_SECONDS": "forever"}))
    await printed(first, job().group)
    rank = rank_process()
    await first.close()
    [record] = world.root.glob("live/*/*/process.json")
    record.unlink()
    (world.root / "live" / "foo").mkdir()
    (world.root / "live" / "foo" / "group.json").write_text("{}")
    monkeypatch.setattr("job_tracker.backends.process.rank._RECORD_SECONDS", 0.5)
    second = world.open()
    end = await seen(second, job().group, lambda o: o.has_ended)
    assert end.first_failure is not None
    _, alive = psutil.wait_procs([rank], PATIENCE)  # process 1 inherits it, and may reap it late
    assert not alive


@pytest.mark.parametrize("keep_until", [None, NOON + timedelta(hours=1)])
async def test_a_result_is_kept_when_the_disk_is_full(
    world: ProcessGroups, tmp_path: Path, keep_until: datetime | None
) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    world.root.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(world.root)], check=True)
    try:
        world.add("program", "sh", "-c", "cat /dev/zero > big; exit 0")
        backend = world.open()
        await backend.launch(job())
        end = await seen(backend, job().group, lambda o: o.has_ended)
        assert [rank.status.phase for rank in end.ranks] == [Phase.SUCCEEDED]
        await backend.stop(job().group, timedelta(0), keep_until)
        await backend.sweep(NOON)
        assert not [path for path in world.root.rglob("*") if path.name in ("work", "tmp", "command")]
        await backend.close()
    finally:
        subprocess.run(["umount", str(world.root)], check=True)


LEAVING = f"""
import os, sys, time
rank, when = os.environ["RANK"], os.environ["LEAVE"]

def wait_until_the_other_has_ended():
    ends = time.monotonic() + {PATIENCE}
    while not os.path.exists("../../program-1-1-worker/exit.json") and time.monotonic() < ends:
        time.sleep(0.01)

if when == "before it joins":
    if rank == "1":
        print("there is no data for me")
        sys.exit(0)
    wait_until_the_other_has_ended()
from trainer_kit.group import join
try:
    with join() as group:
        for step in range(1000):
            if rank == "1" and step == 3:
                print("there is no data for me")
                os._exit(0)
            group.total(step)
except Exception:
    if rank == "0":
        wait_until_the_other_has_ended()
    raise
"""
"""Rank 0 fails only after the end of rank 1 is recorded, because the times of the records show the cause."""


# In the middle, the peer notices it at once. Until then, one rank may start much later than the other.
@pytest.mark.parametrize(("when", "patience"), [("before it joins", "3"), ("in the middle", "240")])
async def test_a_rank_that_leaves_early_is_the_cause_and_not_the_peer_that_fails_without_it(
    world: ProcessGroups, when: str, patience: str
) -> None:
    world.add("program", "python", "-u", "-c", LEAVING)
    backend = world.open()
    leaving = job({"LEAVE": when, "GROUP_TIMEOUT": patience}, instances=2)
    await backend.launch(leaving)
    end = await seen(backend, leaving.group, lambda o: o.has_ended)
    assert end.first_failure is not None
    assert end.first_failure.summary.startswith("Rank 1 left with exit code 0"), end.first_failure
    assert end.first_failure.rank == 1
    assert end.first_failure.detail.endswith("there is no data for me")

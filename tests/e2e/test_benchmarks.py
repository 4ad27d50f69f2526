"""Benchmarks measure the right jobs, and end the processes that they have started."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

from benchmarks import idle, two_projects
from benchmarks.support import processes_in
from tests.support.patience import PATIENCE

_HOLDING = """
import signal
from benchmarks.support import clean_up_on_sigterm, request, service, workspace
from training_service._generated import training_service_pb2 as pb

clean_up_on_sigterm()
with workspace() as folder, service(folder, command=("sleep", "infinity")) as server, server.stub() as stub:
    job_id = stub.Train(request()).job_id
    for status in stub.WatchTraining(pb.WatchTrainingRequest(job_id=job_id)):
        if status.status == pb.running:
            print(folder, flush=True)
            signal.pause()
"""


def test_a_benchmark_that_is_terminated_leaves_no_process() -> None:
    with subprocess.Popen([sys.executable, "-c", _HOLDING], stdout=subprocess.PIPE, text=True) as benchmark:
        assert benchmark.stdout is not None
        folder = benchmark.stdout.readline().strip()
        assert folder
        assert list(processes_in(folder))
        benchmark.terminate()
        assert benchmark.wait(timeout=PATIENCE) == 128 + signal.SIGTERM
    deadline = time.monotonic() + PATIENCE
    while list(processes_in(folder)) and time.monotonic() < deadline:
        time.sleep(0.02)  # those that were killed may still be ending
    assert list(processes_in(folder)) == []


def test_a_restarted_service_finds_running_jobs_and_ends_a_job_killed_meanwhile() -> None:
    *_, found_again = idle.ready(3)
    assert found_again.measured == "2 of 2"


def test_gangs_of_two_projects_start_whole_with_one_queue_and_with_two(tmp_path: Path) -> None:
    shared, alone = every = two_projects.seen_of(two_projects.QUICK, "process")
    # With one queue, the gang runs last. With two queues, the number of jobs that it passes depends on the
    # speed of this machine.
    assert list(shared.overtaken.values()) == [0]
    for seen in every:
        assert seen.started.keys() == seen.submitted.keys()
        # On a slow machine, the gang may run between two snapshots.
        assert set(seen.running[two_projects.GANGS]) <= {0, two_projects.GANG}
    assert sum(alone.running[two_projects.FLOODS]) > 0
    picture = tmp_path / "picture.svg"
    two_projects.draw(every, picture)
    ElementTree.parse(picture)

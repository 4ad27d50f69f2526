"""Benchmarks measure the right jobs, and end the processes that they have started."""

import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from benchmarks import idle, two_projects
from benchmarks.support import processes_in

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
        assert benchmark.wait(timeout=60) == 128 + signal.SIGTERM
    assert list(processes_in(folder)) == []


def test_a_restarted_service_finds_running_jobs_and_ends_a_job_killed_meanwhile() -> None:
    *_, found_again = idle.ready(3)
    assert found_again.measured == "2 of 2"


def test_a_gang_of_another_project_passes_a_flood_if_it_has_its_own_queue(tmp_path: Path) -> None:
    shared, alone = every = two_projects.seen_of(two_projects.QUICK, "process")
    assert list(shared.overtaken.values()) == [0]
    assert all(alone.overtaken.values())
    picture = tmp_path / "picture.svg"
    two_projects.draw(every, picture)
    ElementTree.parse(picture)

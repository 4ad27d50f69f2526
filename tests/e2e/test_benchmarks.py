"""Benchmarks measure what they should, and end what they have started."""

import signal
import subprocess
import sys

import psutil

from benchmarks import idle

_HOLDING = """
import signal
from benchmarks.support import clean_up_when_told_to_end, request, service, workspace
from training_service._generated import training_service_pb2 as pb

clean_up_when_told_to_end()
with workspace() as folder, service(folder, command=("sleep", "infinity")) as server, server.stub() as stub:
    job_id = stub.Train(request()).job_id
    for status in stub.WatchTraining(pb.WatchTrainingRequest(job_id=job_id)):
        if status.status == pb.running:
            print(folder, flush=True)
            signal.pause()
"""


def test_a_benchmark_that_is_told_to_end_leaves_no_process() -> None:
    with subprocess.Popen([sys.executable, "-c", _HOLDING], stdout=subprocess.PIPE, text=True) as benchmark:
        assert benchmark.stdout is not None
        folder = benchmark.stdout.readline().strip()
        assert processes_of(folder)
        benchmark.terminate()
        assert benchmark.wait(timeout=60) == 128 + signal.SIGTERM
    assert processes_of(folder) == []


def test_what_ran_is_found_again_and_a_job_killed_meanwhile_ends() -> None:
    *_, found_again = idle.ready(3)
    assert found_again.measured == "2 of 2"


def processes_of(folder: str) -> list[psutil.Process]:
    """Those that were started in the folder, or for it."""
    assert folder
    found = []
    for process in psutil.process_iter():
        try:
            if any(place.startswith(folder) for place in (process.cwd(), *process.cmdline())):
                found.append(process)
        except psutil.Error:
            continue
    return found

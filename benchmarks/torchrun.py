"""Compares the same training under the service and under bare torchrun: the times from submission to the
first step, and to the end.

Three processes train a classifier of questions for a few epochs, in turn under the service and under
torchrun. In each round, a third run trains as an uploaded program: first, the code and 10 MB beside it are
read, hashed and sent, with new content each time. The first step counts when the user sees it: the first
report of progress in torchrun's output, or the first status with a step from WatchTraining. So the times
include everything that the service adds: the queue, commits, starting processes, reading their logs, and the
way to the client.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import intent_classification

from benchmarks.support import (
    ALGORITHM,
    Row,
    interleaved,
    make_dataset,
    ratio,
    request,
    run_alone,
    script,
    service,
    workspace,
)
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub
from training_service.client import TrainingClient

INSTANCES = 3
_PROGRAM = ("-m", "intent_classification.train")
_TARGET = 1.1
_TARGET_UPLOADED = 0.9


class Times(NamedTuple):
    """Seconds since the submission."""

    first_step: float
    end: float


def measure(quick: bool) -> list[Row]:
    rounds, epochs = (3, 3) if quick else (9, 5)
    with workspace() as folder:
        make_dataset(folder, real=True)
        command = ("python", *_PROGRAM)
        with (
            service(folder, command=command, capacity=INSTANCES) as server,
            server.stub() as stub,
            TrainingClient(server.address) as client,
        ):
            ours, theirs, uploaded = interleaved(
                rounds,
                lambda: _under_the_service(stub, epochs),
                lambda: _under_torchrun(folder, epochs),
                lambda: _uploaded(stub, client, folder / "user", epochs),
            )
    first, end = "submit → first step", "submit → end"
    return [
        _row(first, [each.first_step for each in ours], [each.first_step for each in theirs]),
        _row(end, [each.end for each in ours], [each.end for each in theirs]),
        _row(
            f"{first}, with 10 MB sent",
            [each.first_step for each in uploaded],
            [each.first_step for each in theirs],
            _TARGET_UPLOADED,
        ),
    ]


def _row(name: str, ours: list[float], theirs: list[float], target: float = _TARGET) -> Row:
    times = ratio(ours, theirs)
    return Row(
        f"{INSTANCES} processes: {name}, against torchrun",
        f"{statistics.median(ours):.2f} s",
        f"{statistics.median(theirs):.2f} s",
        f"{times:.2f}",
        f"≤ {target}",
        times <= target,
    )


def _under_the_service(stub: TrainingServiceStub, epochs: int) -> Times:
    submitted = time.perf_counter()
    job_id = stub.Train(request(PARALLEL_INSTANCES=str(INSTANCES), EPOCHS=str(epochs))).job_id
    return _watched(stub, job_id, submitted)


def _uploaded(stub: TrainingServiceStub, client: TrainingClient, user: Path, epochs: int) -> Times:
    """Upload a folder with new files, run the training in it as a job, and return the times."""
    shutil.rmtree(user, ignore_errors=True)
    code = Path(intent_classification.__file__).parent
    shutil.copytree(code, user / code.name, ignore=shutil.ignore_patterns("__pycache__"))
    (user / "weights.bin").write_bytes(os.urandom(10 << 20))
    submitted = time.perf_counter()
    job_id = client.run(
        ["python", *_PROGRAM],
        folder=user,
        instances=INSTANCES,
        dataset_id="1",
        dataset_version="v1",
        output_model_name="my-model",
        environment={**request().metadata.parameters, "EPOCHS": str(epochs)},
    )
    return _watched(stub, job_id, submitted)


def _watched(stub: TrainingServiceStub, job_id: int, submitted: float) -> Times:
    first_step = 0.0
    for status in stub.WatchTraining(pb.WatchTrainingRequest(job_id=job_id)):
        if not first_step and status.progress.step:
            first_step = time.perf_counter() - submitted
        last = status
    if last.status != pb.succeed:
        raise RuntimeError(f"job {job_id} did not succeed: {last.message}")
    return Times(first_step, time.perf_counter() - submitted)


def _under_torchrun(folder: Path, epochs: int) -> Times:
    storage = folder / "storage"
    parameters = dict(request().metadata.parameters)
    environment = {
        **parameters,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}",
        "EPOCHS": str(epochs),
        "OMP_NUM_THREADS": "1",  # the same as under the service on fewer than six cores
        "JOB_ID": "0",
        "JOB_ATTEMPT": "1",
        "ALGORITHM_NAME": ALGORITHM,
        "MODEL_NAME": "my-model",
        "MODEL_URI": str(storage / "models" / "torchrun"),
        "CHECKPOINT_URI": str(storage / "checkpoints" / "torchrun"),
        "TRAINING_DATASET_ID": "1",
        "TRAINING_DATASET_VERSION_HASH": "v1",
        "TRAINING_DATA_URI": str(storage / "versionedDatasets" / "1" / "v1"),
    }
    submitted = time.perf_counter()
    first_step = 0.0
    with subprocess.Popen(
        [script("torchrun"), f"--nproc-per-node={INSTANCES}", *_PROGRAM],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout
        for line in process.stdout:
            report = line.partition("::progress::")[2]
            if not first_step and report and json.loads(report).get("step"):
                first_step = time.perf_counter() - submitted
    if process.returncode:
        raise RuntimeError(f"torchrun exited with {process.returncode}")
    return Times(first_step, time.perf_counter() - submitted)


if __name__ == "__main__":
    run_alone(measure)

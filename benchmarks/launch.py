"""Time of a launch: from Train's answer at the client until every process of the group runs.

A job has three instances; capacity is free and the service is otherwise idle. The program is `date +%s%N`,
which prints the time at once, so a launch does not include the start of a shell, of Python or of training
code. Client, service and processes read the same clock. The group's log says when each process started. The
next job is submitted when the group has ended.

The baseline does the least possible work: an idle Python process starts the same three programs by
`posix_spawn`. It does less than the service must: it keeps no exit codes, and its children need not outlive
it. So its time is not a target.

A launch has several parts, whose ends are the modification times of the process backend's files (files.py).
The kernel rounds these times to 4 ms, so the table shows the mean of many launches for each part.
"""

import itertools
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.support import ALGORITHM, Row, request, run_alone, service, workspace
from training_service._generated import training_service_pb2 as pb
from training_service._generated.training_service_pb2_grpc import TrainingServiceStub

INSTANCES = 3
_PROGRAM = ("date", "+%s%N")
_TARGET_MS = 50.0
_ENDED = (pb.succeed, pb.failure, pb.cancelled)
_PARTS = ("group.json", "*/tmp", "*/lock", "*/process.json")
_PART_NAMES = (
    "admitted and committed",
    "folders written",
    "supervisors started",
    "processes forked",
    "programs started",
)


def measure(quick: bool) -> list[Row]:
    count = 10 if quick else 40
    with (
        workspace() as folder,
        service(folder, command=_PROGRAM, capacity=INSTANCES, jobs__keep_succeeded_group="3600") as server,
        server.stub() as stub,
    ):
        launches = [_launch(stub, folder) for _ in range(count + 2)][2:]
    directly = [_spawn() for _ in range(count)]
    milliseconds = [total for total, _ in launches]
    median, peer = statistics.median(milliseconds), statistics.median(directly)
    rows = [
        Row(
            f"launch: Train returned → {INSTANCES} processes run, median of {count}",
            f"{median:.1f} ms (p90 {sorted(milliseconds)[count * 9 // 10]:.1f})",
            f"{peer:.1f} ms",
            f"{median / peer:.0f}",
            f"< {_TARGET_MS:.0f} ms",
            median < _TARGET_MS,
        )
    ]
    for name, values in zip(_PART_NAMES, zip(*(parts for _, parts in launches), strict=True), strict=True):
        rows.append(Row(f"launch: … {name}, mean", f"{statistics.fmean(values):.1f} ms"))
    return rows


def _launch(stub: TrainingServiceStub, data_dir: Path) -> tuple[float, list[float]]:
    """Launch a job.

    Return the milliseconds from the answer until the last process runs: in all, and for each part.
    """
    job_id = stub.Train(request(PARALLEL_INSTANCES=str(INSTANCES))).job_id
    answered = time.time_ns()
    for status in stub.WatchTraining(pb.WatchTrainingRequest(job_id=job_id)):
        last = status
    if last.status != pb.succeed:
        raise RuntimeError(f"job {job_id} did not succeed: {last.message}")
    logs = stub.GetTrainingLogs(pb.GetTrainingLogsRequest(job_id=job_id, all_ranks=True))
    started = max(int(time) for piece in logs for time in piece.text.split())
    # The folder's name begins with the store's id, which only the service knows.
    (group,) = (data_dir / "groups" / "kept").glob(f"*.{ALGORITHM}-{job_id}")
    steps = [answered, *(_last_written(group, pattern) for pattern in _PARTS), started]
    parts = [(after - before) / 1e6 for before, after in itertools.pairwise(steps)]
    return (started - answered) / 1e6, parts


def _last_written(group: Path, pattern: str) -> int:
    return max(path.stat().st_mtime_ns for path in group.glob(pattern))


def _spawn() -> float:
    """Start the same programs without a service, and return the milliseconds until the last of them runs."""
    asked = time.time_ns()
    pipes = []
    for _ in range(INSTANCES):
        output, inlet = os.pipe()
        actions: Sequence[tuple[int, int, int]] = [(os.POSIX_SPAWN_DUP2, inlet, 1)]
        pid = os.posix_spawnp(_PROGRAM[0], _PROGRAM, os.environ, file_actions=actions)
        os.close(inlet)
        pipes.append((pid, output))
    started = []
    for pid, output in pipes:
        with os.fdopen(output) as pipe:
            started.append(int(pipe.read()))
        os.waitpid(pid, 0)
    return (max(started) - asked) / 1e6


if __name__ == "__main__":
    run_alone(measure)

"""Tests of the checks of chaos runs: they detect violations in the audit, and errors in logs."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos import rank
from tests.chaos.audit import Audit
from tests.chaos.faults import Disturbances
from tests.chaos.logged import errors_in


class Ranks:
    """Real ranks of job 1 that write to one audit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, attempt: int, number: int, **environment: str) -> subprocess.Popen[bytes]:
        """Start a rank, and wait until it has recorded that."""
        environment_of_rank = {
            **{"JOB_ID": "1", "JOB_ATTEMPT": str(attempt), "RANK": str(number), "WORLD_SIZE": "2"},
            **{"AUDIT": str(self.folder), "HOME": str(self.folder), "DO": "hold"},
            **{"MODEL_URI": str(self.folder / "model"), "CHECKPOINT_URI": str(self.folder / "checkpoint")},
        }
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", rank.__file__],
            env={**environment_of_rank, **environment},
            stdout=subprocess.PIPE,
        )
        self._started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == f"rank {number} of job 1\n".encode()
        return process

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()

    def audit(self) -> Audit:
        return Audit(self.folder / "audit")


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    made = Ranks(tmp_path)
    yield made
    made.end()


def test_a_correct_group_and_its_next_attempt_pass_all_checks(ranks: Ranks) -> None:
    for attempt in (1, 2):
        group = [ranks.start(attempt, number) for number in (0, 1)]
        group[0].send_signal(signal.SIGTERM)
        group[1].kill()
        assert [process.wait() for process in group] == [128 + signal.SIGTERM, -signal.SIGKILL]
    audit = ranks.audit()
    assert [*audit.doubles(1), *audit.overlaps(1, ()), *audit.orphans(1, ()), *audit.lost_steps(1)] == []
    assert audit.count("start") == 4
    assert [line.what for line in audit[1] if line.event == "end"] == ["stopped", "stopped"]


def test_a_rank_that_runs_twice_is_detected(ranks: Ranks) -> None:
    for _ in range(2):
        ranks.start(1, 0)
    assert list(ranks.audit().doubles(1)) == [
        "job 1 attempt 1 rank 0: 2 times start",
        "job 1 attempt 1 rank 0 ran twice at once",
    ]


def test_a_rank_started_again_after_its_end_is_detected(ranks: Ranks) -> None:
    for _ in range(2):
        ranks.start(1, 0, DO="run").wait()
    assert list(ranks.audit().doubles(1)) == [
        "job 1 attempt 1 rank 0: 2 times start",
        "job 1 attempt 1 rank 0: 2 times end",
    ]


def test_overlapping_attempts_are_detected(ranks: Ranks) -> None:
    ranks.start(1, 1)
    ranks.start(2, 0).kill()
    assert list(ranks.audit().overlaps(1, ())) == ["job 1 attempt 2 rank 0 began while another attempt ran"]
    assert list(ranks.audit().overlaps(1, {(1, 1)})) == []


def test_a_process_left_behind_is_detected(ranks: Ranks) -> None:
    left = ranks.start(1, 0)
    for excused in ((), {(1, 1)}):
        [orphan] = ranks.audit().orphans(1, excused)
        assert orphan == f"job 1 attempt 1 rank 0 still runs: pid {left.pid} (-)"


def test_a_hidden_process_is_excused_only_if_the_supervisor_of_its_attempt_was_killed(ranks: Ranks) -> None:
    hidden = ranks.start(1, 0)
    file = ranks.folder / "audit"
    file.write_text(file.read_text().replace("start ", "child "))
    assert len(list(ranks.audit().orphans(1, {(1, 2), (2, 1)}))) == 1
    assert list(ranks.audit().orphans(1, {(1, 1)})) == []
    ranks.audit().kill_left()
    assert hidden.wait() == -signal.SIGKILL


def test_an_attempt_that_ignores_the_checkpoint_is_detected(ranks: Ranks) -> None:
    ranks.start(1, 0, DO="checkpoint", SECONDS="0.3").wait()
    ranks.start(2, 0, DO="checkpoint", SECONDS="0.5").wait()
    assert list(ranks.audit().lost_steps(1)) == []
    (ranks.folder / "checkpoint" / "step").write_text("2")
    ranks.start(3, 0, DO="checkpoint", SECONDS="0.5").wait()
    assert list(ranks.audit().lost_steps(1)) == [
        "job 1 attempt 3 rank 0 continued from step 2, but step 5 was saved"
    ]


def test_only_time_without_a_disturbance_counts() -> None:
    disturbances = Disturbances([(10.0, 12.0), (11.0, 15.0), (20.0, None)])
    assert disturbances.quiet_seconds(9.0, 16.0) == 2.0
    assert disturbances.quiet_seconds(12.5, 14.0) == 0.0
    assert disturbances.quiet_seconds(16.0, 30.0) == 4.0


def test_unforeseen_errors_in_a_log_are_counted_by_exception(
    tmp_path: Path,
) -> None:
    log = tmp_path / "service.log"
    log.write_text(
        """2026-11-22 15:33:18,966 ERROR   job_tracker.common.work_queue [job=1] work on 1 failed
    | Traceback (most recent call last):
    |   File "x.py", line 1, in x
    | job_tracker.domain.errors.StoreUnavailable: it is away
2026-11-22 15:33:18,966 INFO    job_tracker.tracking.tracker Traceback of nothing
2026-11-22 15:33:18,970 ERROR   x.backend /live/1f.hostile-3-r1 was removed while the group's processes were \
running; stopping the group
2026-11-22 15:33:18,970 ERROR   x.backend /live/1f.honest-4 was removed while the group's processes were \
running; stopping the group
2026-11-22 15:33:19,004 ERROR   job_tracker.common.work_queue [job=2] work on 2 failed
    | Traceback (most recent call last):
    | RecursionError
Traceback (most recent call last):
  File "x.py", line 1, in <module>
MemoryError
"""
    )
    assert errors_in([log], {"StoreUnavailable"}) == {
        "x.backend /live/Nf.honest-N was removed while the group's processes were running; stopping the "
        "group": 1,
        "job_tracker.common.work_queue [job=N] work on N failed: RecursionError": 1,
        "Traceback (most recent call last): MemoryError": 1,
    }

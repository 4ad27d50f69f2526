"""Real groups of processes that are killed, ended by SIGTERM, and started again."""

import random
import signal
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.support.trainers.checkpoint_groups import (
    PROGRAM,
    Job,
    end_of,
    losses,
    read_until,
    weights,
)
from tests.support.trainers.checkpoints import Start
from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.launcher import Ended, Launcher

TERMINATED = 128 + signal.SIGTERM
EPOCHS, EXAMPLES, BATCH = 3, 120, 5


@pytest.fixture
def job(launcher: Launcher, folder: Path) -> Job:
    return Job(launcher, str(folder))


@pytest.fixture(scope="module")
def unbroken(
    tmp_path_factory: pytest.TempPathFactory, forks: Sequence[ForkServer]
) -> Callable[[int], list[Ended]]:
    """Return the ends of an undisturbed group of this size."""

    @cache
    def run_once(size: int) -> list[Ended]:
        with Launcher(tmp_path_factory.mktemp("unbroken"), forks=forks) as launcher:
            return [end_of(process) for process in launcher.start_group(size, PROGRAM)]

    return run_once


@pytest.mark.parametrize("size", [2, 3])
def test_a_group_that_is_killed_twice_reaches_identical_losses_and_weights(
    job: Job, unbroken: Callable[[int], list[Ended]], size: int
) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    chance = random.Random(seed)
    total = EPOCHS * (EXAMPLES // (size * BATCH))
    reported: dict[int, str] = {}
    # Attempt 1 may save step total // 2. The second range begins after the first save of attempt 2.
    for first, last in ((total // 4, total // 2), (total // 2 + 4, total - 2)):
        group = job.start(size, WAIT="1", HOLD_AT=str(last))
        reported |= losses(read_until(group[0], chance.randint(first, last)))
        chance.choice(group).kill()
        ends = [end_of(process) for process in group]
        assert all(end.code != 0 for end in ends)
        reported |= losses(ends[0].stdout.splitlines())
    ends = job.run(size)
    again = losses(ends[0].stdout.splitlines())
    assert min(again) > total // 2 - 3, "it resumes from the last checkpoint, not from an earlier one"
    assert f"resuming from step {min(again) - 1}, saved by attempt 2" in ends[0].stdout
    assert {step: loss for step, loss in reported.items() if step in again}.items() <= again.items()

    assert reported | again == losses(unbroken(size)[0].stdout.splitlines())
    assert [weights(end) for end in ends] == [weights(end) for end in unbroken(size)]


def test_sigterm_to_one_rank_saves_and_ends_all(
    job: Job, start: Start, unbroken: Callable[[int], list[Ended]], tmp_path: Path
) -> None:
    never, go = {"CHECKPOINT_EVERY_STEPS": "1000000", "CHECKPOINT_GRACE_SECONDS": "200"}, tmp_path / "go"
    group = job.start(3, **never, HOLD_AT="5", GO=str(go))
    read_until(group[2], 5)
    group[1].terminate()
    go.touch()
    ends = [end_of(process) for process in group]
    assert [end.code for end in ends] == [TERMINATED] * 3, [end.stderr for end in ends]
    [saved] = start.published
    assert f"ending on SIGTERM after step {saved.step}" in ends[0].stdout
    resumed = job.run(3, **never)
    assert min(losses(resumed[0].stdout.splitlines())) == saved.step + 1
    assert [weights(end) for end in resumed] == [weights(end) for end in unbroken(3)]


@pytest.mark.parametrize(
    ("before", "after", "model"),
    [(3, 1, {}), (2, 3, {"SHARDED": "1"})],
    ids=["replicated by 3, then alone", "sharded over 2, then over 3"],
)
def test_a_job_resumes_with_another_number_of_processes(
    job: Job, before: int, after: int, model: dict[str, str]
) -> None:
    group = job.start(before, WAIT="1", HOLD_AT="10", **model)
    read_until(group[0], 10)
    for process in group:
        process.kill()
        end_of(process)
    ends = job.run(after, **model)
    reported = losses(ends[0].stdout.splitlines())
    # All remaining examples are used, except an incomplete step at the end of an epoch.
    left = EPOCHS * EXAMPLES - 9 * before * BATCH
    assert min(reported) == 10
    assert len(reported) == pytest.approx(left / (after * BATCH), abs=1)
    assert len({weights(end) for end in ends}) == 1


def test_a_rank_that_is_killed_while_saving_leaves_earlier_checkpoints(
    launcher: Launcher, folder: Path, start: Start
) -> None:
    job = Job(launcher, f"hindered://{folder}")
    [first] = job.start(1, WAIT="1", HOLD_AT="5")
    read_until(first, 5)
    first.kill()
    end_of(first)
    [second] = job.start(1, HINDER="stall")
    assert second.stdout
    assert next(line for line in second.stdout if "stalled" in line)
    second.kill()
    end_of(second)
    before = start.published_steps
    assert before == [3]
    assert len(list(folder.glob("*.step-*[0-9]"))) == 2, "one is incomplete"

    [end] = job.run(1)
    assert "resuming from step 3, saved by attempt 1" in end.stdout
    assert {path.name for path in folder.glob("*.step-*[0-9]")} == {str(each) for each in start.published}


def test_storage_that_one_rank_cannot_write_to_does_not_stop_the_training(
    launcher: Launcher, folder: Path, start: Start, unbroken: Callable[[int], list[Ended]]
) -> None:
    ends = Job(launcher, f"hindered://{folder}").run(2, WAIT="1", HINDER="refuse")
    assert "rank 1 may not write" in ends[0].stdout
    assert ends[1].stderr == ""
    assert start.published == []
    assert [weights(end) for end in ends] == [weights(end) for end in unbroken(2)]

"""Two concurrent attempts of one job: the older one no longer publishes or removes checkpoints."""

import signal

import pytest
from trainer_kit.checkpoints.folder import CheckpointFolder
from trainer_kit.checkpoints.manifest import Manifest, Part
from trainer_kit.checkpoints.names import Checkpoint, Listing, Run
from trainer_kit.errors import SupersededError
from trainer_kit.termination import Terminated

from tests.support.trainers.checkpoints import ALONE_IS_FINE, Start

pytestmark = ALONE_IS_FINE
MANIFEST = Manifest(1, {"part": Part(0, "")})


def test_an_older_attempt_ends_without_publishing_once_a_newer_one_has_started(start: Start) -> None:
    ends = pytest.raises(SupersededError, match="attempt 1 of this job stops: attempt 2 was started")
    with ends, start.attempt(1) as older:
        older.steps(2)
        with start.attempt(2) as newer:
            assert newer.run.steps == 2
            older.steps(1)  # it notices this when it saves
            newer.steps(1)
            older.steps(1)  # it ends at the next step
    assert [(each.run.attempt, each.step) for each in start.published] == [(2, 3), (1, 2), (1, 1)]


def test_an_older_attempt_that_starts_late_does_not_train(start: Start) -> None:
    with start.attempt(2) as newer:
        newer.steps(1)
    with pytest.raises(SupersededError), start.attempt(1):
        pytest.fail("it must not train")


def test_a_second_start_of_an_attempt_ends_the_first(start: Start) -> None:
    with pytest.raises(SupersededError), start.attempt(1) as earlier:  # noqa: PT012
        earlier.steps(1)
        with start.attempt(1) as later:
            assert later.run.steps == 1
            earlier.steps(2)


def test_an_older_attempt_saves_nothing_on_sigterm(start: Start) -> None:
    with pytest.raises(Terminated), start.attempt(1, CHECKPOINT_EVERY_STEPS="100") as older:  # noqa: PT012
        older.steps(1)
        with start.attempt(2) as newer:
            newer.steps(1)
        signal.raise_signal(signal.SIGTERM)
        older.steps(1)
    assert [each.run.attempt for each in start.published] == [2]


def test_a_late_checkpoint_of_an_older_attempt_does_not_count(start: Start) -> None:
    # The older attempt lists the folder before the newer one starts, stalls, and writes its manifest later.
    folder = CheckpointFolder(start.uri)
    with start.attempt(1) as older:
        older.steps(5)
    with start.attempt(2, CHECKPOINT_KEEP="9") as newer:
        newer.steps(1)
        [run] = {each.run for each in start.published if each.run.attempt == 1}
        late = Checkpoint(run, 500)
        folder.filesystem.pipe_file(f"{folder.path}/{late.manifest}", MANIFEST.to_json())
        newer.steps(1)
    with start.attempt(3) as newest:
        assert newest.run.steps == 7


def test_a_newer_attempt_finds_what_the_older_one_has_published(start: Start) -> None:
    # An older run may remove only checkpoints of a listing that shows no newer run.
    folder = CheckpointFolder(start.uri)
    older = folder.begin(1)
    for step in (1, 2):
        folder.filesystem.makedirs(folder.path_of(Checkpoint(older, step)))
        folder.publish(Checkpoint(older, step), MANIFEST)
    newer = folder.begin(2)
    with pytest.raises(SupersededError):
        folder.tidy(older, keep=1)
    with pytest.raises(SupersededError):
        folder.publish(Checkpoint(older, 3), MANIFEST)
    assert folder.look().published == (Checkpoint(older, 2), Checkpoint(older, 1))
    folder.tidy(newer, keep=1)
    assert folder.look() == Listing(frozenset({newer}), (Checkpoint(older, 2),), frozenset())


def test_of_two_concurrent_starts_exactly_one_continues() -> None:
    one, other = Run.after([], 1), Run.after([], 1)
    listing = Listing.of([one.fence, other.fence])
    assert [listing.successor_of(run) is None for run in sorted((one, other))] == [False, True]


def test_names_sort_by_attempt_start_and_step() -> None:
    runs = [Run(1, 1, "ffffffff"), Run(1, 2, "00000000"), Run(2, 1, "00000000"), Run(10, 1, "00000000")]
    checkpoints = [Checkpoint(run, step) for run in runs for step in (9, 10)]
    assert sorted(map(str, checkpoints)) == list(map(str, checkpoints))
    listing = Listing.of([each.manifest for each in checkpoints])
    assert listing.published == tuple(reversed(checkpoints))

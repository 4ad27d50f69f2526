"""Folders of jobs: inside the home with which a job was accepted."""

from job_tracker.domain import naming
from job_tracker.domain.group import GroupRef
from tests.support.jobs import job, job_of, spec

HOME = naming.home("default", "1a2b3c4d")


def test_the_folders_of_a_job_have_the_id_of_its_store() -> None:
    made = job_of(spec(home=HOME), job_id=7)
    assert made.folder == made.group.job_folder == "default/1a2b3c4d-7"
    assert made.model_uri == "/storage/models/a-model/default/1a2b3c4d-7"
    assert made.checkpoint_uri == "/storage/checkpoints/default/1a2b3c4d-7"


def test_a_job_without_a_home_keeps_its_folders() -> None:
    made = job(job_id=7)
    assert made.folder == made.group.job_folder == "7"
    assert made.model_uri == "/storage/models/a-model/7"
    assert made.checkpoint_uri == "/storage/checkpoints/7"


def test_groups_are_compared_without_their_homes() -> None:
    known, unknown = job_of(spec(home=HOME)).group, GroupRef("program-1", 1, 1)
    assert known == unknown
    assert hash(known) == hash(unknown)


def test_a_home_contains_the_id_of_its_store() -> None:
    assert (naming.store_of(HOME), naming.store_of("")) == ("1a2b3c4d", "")

"""The groups as the backend shows them."""

from job_tracker.backends.base import Observation, RankObservation
from job_tracker.backends.fake import FakeBackend
from job_tracker.domain.group import Phase, RankStatus
from job_tracker.tracking.sightings import Sightings
from tests.support.jobs import job

SEEN = Observation((RankObservation(RankStatus(0, Phase.RUNNING)),))


def test_groups_are_found_by_their_job_until_they_are_forgotten() -> None:
    sightings = Sightings(FakeBackend(), lambda _: None, lambda: None)
    first, second = job(job_id=1).group, job(job_id=2).group
    sightings.put(first, SEEN)
    sightings.put(second, SEEN)
    assert sightings.get(first) == SEEN
    assert list(sightings.of_job(1)) == [first]

    sightings.forget(first)
    sightings.forget(first)

    assert sightings.get(first) is None
    assert list(sightings.of_job(1)) == []
    assert list(sightings.of_job(2)) == [second]

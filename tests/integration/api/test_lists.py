"""Lists of jobs over the API."""

from job_tracker.store.base import LARGEST_LIST
from tests.integration.api.conftest import Service
from training_service._generated import training_service_pb2 as pb


async def test_a_page_of_large_jobs_ends_early_and_the_next_one_goes_on(door: Service) -> None:
    ids = [await door.train({f"P{n}": "x" * 4_000 for n in range(15)}) for _ in range(40)]
    found: list[int] = []
    request = pb.ListTrainingJobsRequest(page_size=1000)
    while True:
        page = await door.stub.ListTrainingJobs(request)
        assert page.ByteSize() < LARGEST_LIST
        found += [job.job_id for job in page.jobs]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert found == ids[::-1]

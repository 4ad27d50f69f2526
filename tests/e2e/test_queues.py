"""Queues of a running service."""

from tests.support.server import Server


def test_jobs_start_as_soon_as_their_queue_allows_it(server: Server) -> None:
    """The start comes before the next look at all jobs, which happens every 30 s."""
    with server.start("--backend", "fake") as client:
        client.catalog.set_queue("closed", {"max_running": 0})
        job = client.submit(
            "program", "1", "v1", queue="closed", priority="high", parameters={"RUN_SECONDS": "0"}
        )
        assert [reason.code for reason in client.why(job).reasons] == ["max_running"]
        client.catalog.set_queue("closed", {"max_running": 1})
        client.wait(job)

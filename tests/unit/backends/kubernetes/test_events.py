"""The progress of a job is reported as Events on its master pod, in the background."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from job_tracker.backends.kubernetes.client import KubernetesClient
from job_tracker.backends.kubernetes.events import EventRecorder
from job_tracker.backends.kubernetes.groups import Groups
from job_tracker.backends.kubernetes.labels import Manifest
from job_tracker.backends.kubernetes.plan import plan
from job_tracker.backends.kubernetes.settings import KubernetesSettings
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.eviction import Eviction, EvictionReason
from job_tracker.domain.job import Ending, Job, JobState, Preemption, PreemptionReason, new_job
from job_tracker.domain.policies import RetryPolicy
from tests.support import schemas
from tests.support.catalog import algorithm_of, pod_resolver
from tests.support.jobs import NOON, spec
from tests.support.scripted_api import Scripted, says, status

SETTINGS = KubernetesSettings(namespace="here", instance="ours")
LOST = Diagnosis(
    category=Category.NODE_LOST, summary="Node a is gone.", resolution="Wait for it.", retryable=True
)
CREATED = says({})


class History:
    """A job's history as the tracker writes it, observed by the recorder."""

    def __init__(self, recorder: EventRecorder, groups: Groups) -> None:
        self.recorder = recorder
        self.groups = groups
        self.job = new_job(1, spec(instances=3, retry=RetryPolicy(max_attempts=2)), NOON)

    def saves(self, after: Job) -> None:
        before, self.job = self.job, after
        self.recorder.job_saved(before, after)

    def launches(self) -> None:
        self.saves(self.job.admitted(NOON))

    def has_pods(self) -> None:
        algorithms = {"program": algorithm_of(kubernetes={"image": "image:1", "command": ("python",)})}
        wanted = replace(self.job, spec=pod_resolver(algorithms).completed(self.job.spec))
        self.groups.take([(self._made(pod), False) for pod in plan(wanted, SETTINGS).pods])
        group = self.groups.get(self.job.group)
        assert group is not None
        self.saves(self.job.observed(self.groups.observe(group).statuses))

    def ends(self, state: JobState, why: Diagnosis | None = None) -> None:
        """Decide the end, stop the group, and save the end."""
        self.saves(self.job.decided(Ending(state, NOON, why)))
        self.has_ended()

    def has_ended(self) -> None:
        assert self.job.ending is not None
        self.groups.drop(self.job.group)
        self.saves(self.job.ended(self.job.ending, NOON))

    @staticmethod
    def _made(pod: Manifest) -> Manifest:
        name = pod["metadata"]["name"]
        return {**pod, "metadata": {**pod["metadata"], "uid": f"uid-of-{name}", "resourceVersion": "1"}}


@pytest.fixture
async def groups() -> AsyncIterator[Groups]:
    made = Groups(clock=lambda: NOON)
    yield made
    made.close()


@pytest.fixture
async def recorder(client: KubernetesClient, groups: Groups) -> AsyncIterator[EventRecorder]:
    made = EventRecorder(client, groups, SETTINGS, clock=lambda: NOON + timedelta(seconds=1))
    yield made
    await made.close()


@pytest.fixture
def history(recorder: EventRecorder, groups: Groups) -> History:
    return History(recorder, groups)


def sent(server: Scripted) -> list[tuple[str, str, str | None]]:
    """Return reason, type and pod uid of each Event that was sent."""
    return [
        (body["reason"], body["type"], body["involvedObject"].get("uid"))
        for body in (body for body in server.bodies if body)
    ]


async def test_each_change_is_an_event_on_the_master(server: Scripted, history: History) -> None:
    server.answers = [CREATED] * 10
    history.launches()
    history.has_pods()
    await history.recorder.flush()
    history.saves(history.job.running(NOON))
    history.ends(JobState.BACKOFF, LOST)
    history.saves(history.job.queued_again(NOON))
    await history.recorder.flush()
    first = "uid-of-program-1-master"
    assert sent(server) == [
        ("Launching", "Normal", first),
        ("Running", "Normal", first),
        ("Retrying", "Warning", first),
    ]
    server.bodies.clear()
    history.launches()
    history.has_pods()
    await history.recorder.flush()
    history.ends(JobState.FAILED, LOST)
    await history.recorder.flush()
    second = "uid-of-program-1-r1-master"
    assert sent(server) == [("Launching", "Normal", second), ("Failed", "Warning", second)]
    assert server.bodies[-1]["message"] == (
        "Node a is gone. Wait for it. No attempt follows attempt 2 of at most 2."
    )


async def test_why_a_job_waits_is_an_event_for_each_reason(server: Scripted, history: History) -> None:
    server.answers = [CREATED] * 10
    waiting = replace(history.job, attempt=0)
    history.recorder.job_waits(
        waiting, "max_running", "Its queue, or a parent of it, runs as many jobs as it may."
    )
    history.recorder.job_waits(waiting, "capacity", "Other jobs use what it needs.")
    await history.recorder.flush()
    assert sent(server) == [("Waiting", "Normal", None)] * 2
    bodies = [body for body in server.bodies if body]
    assert bodies[0]["message"] == "max_running: Its queue, or a parent of it, runs as many jobs as it may."
    assert bodies[0]["involvedObject"]["name"] == "program-1-master"
    assert [body["metadata"]["name"].rpartition(".")[0] for body in bodies] == [
        "program-1-master.waiting-max-running",
        "program-1-master.waiting-capacity",
    ]


async def test_a_cancellation_is_reported_when_it_is_complete(server: Scripted, history: History) -> None:
    server.answers = [CREATED] * 10
    history.launches()
    history.has_pods()
    history.saves(history.job.running(NOON))
    # The API writes the decision; the tracker reads it and stops the group.
    history.job = history.job.decided(Ending(JobState.CANCELLED, NOON))
    history.has_ended()
    await history.recorder.flush()
    assert sent(server)[-1] == ("Cancelled", "Normal", "uid-of-program-1-master")


async def test_a_change_of_size_is_reported(server: Scripted, history: History) -> None:
    server.answers = [CREATED] * 10
    history.launches()
    history.has_pods()
    history.saves(history.job.running(NOON))
    history.saves(history.job.preempted(Preemption(by_job=0, why=PreemptionReason.GROW, trainers=4), NOON))
    await history.recorder.flush()
    assert sent(server)[-1] == ("Resized", "Normal", "uid-of-program-1-master")
    assert server.bodies[-1]["message"] == (
        "Made larger: more instances are free. The job is queued again after attempt 1 of at most 2."
    )


async def test_a_preemption_is_reported_and_so_is_an_end_that_came_before(
    server: Scripted, history: History
) -> None:
    server.answers = [CREATED] * 10
    history.launches()
    history.has_pods()
    history.saves(history.job.running(NOON))
    why = Preemption(by_job=2, why=PreemptionReason.PRIORITY, by_project="default")
    history.saves(history.job.preempted(why, NOON))
    await history.recorder.flush()
    assert sent(server)[-1] == ("Preempted", "Normal", "uid-of-program-1-master")
    assert server.bodies[-1]["message"] == (
        "Preempted: job 2 has a higher priority. The job is queued again after attempt 1 of at most 2."
    )
    history.ends(JobState.SUCCEEDED)
    await history.recorder.flush()
    assert sent(server)[-1] == ("Succeeded", "Normal", "uid-of-program-1-master")


async def test_an_eviction_is_reported(server: Scripted, history: History) -> None:
    server.answers = [CREATED] * 10
    history.launches()
    history.has_pods()
    history.saves(history.job.running(NOON))
    history.saves(history.job.evicted(Eviction(why=EvictionReason.SHUT_DOWN, at=NOON, machine="n7"), NOON))
    await history.recorder.flush()
    assert sent(server)[-1] == ("Evicted", "Normal", "uid-of-program-1-master")
    assert server.bodies[-1]["message"] == (
        "Evicted: n7, with rank 0, is being shut down. The job is queued again after attempt 1 of at most 2."
    )


async def test_success_is_reported_once(server: Scripted, history: History) -> None:
    server.answers = [CREATED] * 10
    history.launches()
    history.has_pods()
    history.saves(history.job.running(NOON))
    history.saves(history.job.observed(()))
    history.ends(JobState.SUCCEEDED)
    await history.recorder.flush()
    assert [reason for reason, *_ in sent(server)] == ["Launching", "Running", "Succeeded"]


async def test_a_job_without_a_group_has_no_events(server: Scripted, history: History) -> None:
    history.saves(history.job.ended(Ending(JobState.CANCELLED, NOON), NOON))
    await history.recorder.flush()
    assert server.requests == []


async def test_an_event_is_valid_and_its_name_identifies_its_content(
    server: Scripted, history: History
) -> None:
    server.answers = [CREATED]
    history.launches()
    history.has_pods()
    await history.recorder.flush()
    (event,) = server.bodies
    for version in schemas.VERSIONS:
        schemas.check(event, version)
    assert server.requests == ["POST /api/v1/namespaces/here/events"]
    assert event["metadata"]["name"].startswith("program-1-master.launching.")
    assert event["metadata"]["namespace"] == event["involvedObject"]["namespace"] == "here"
    assert event["metadata"]["labels"]["training-service/job-id"] == "1"


async def test_a_repeated_event_has_the_same_name_but_that_of_another_stores_job_differs(
    server: Scripted, recorder: EventRecorder, groups: Groups, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers = [CREATED, status(409, "AlreadyExists"), CREATED]
    histories = [History(recorder, groups) for _ in range(3)]
    histories[2].job = new_job(1, histories[2].job.spec, NOON + timedelta(days=1))
    for each in histories:
        each.launches()
        each.has_pods()
        await recorder.flush()
    first, again, another = [body["metadata"]["name"] for body in server.bodies]
    assert first == again
    assert first != another
    assert caplog.text == ""


async def test_long_messages_are_clipped(server: Scripted, history: History) -> None:
    server.answers = [CREATED] * 2
    history.launches()
    history.has_pods()
    long = Diagnosis(category=Category.UNKNOWN, summary="ü" * 5000, resolution="Shorten it.")
    history.ends(JobState.FAILED, long)
    await history.recorder.flush()
    assert len(server.bodies[-1]["message"].encode()) <= 1024


async def test_a_refusal_of_events_is_logged_once_and_fails_nothing(
    server: Scripted, history: History, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers = [status(403, "Forbidden", "may not create events")] * 3
    history.launches()
    history.has_pods()
    history.saves(history.job.running(NOON))
    history.ends(JobState.SUCCEEDED)
    await history.recorder.flush()
    assert caplog.messages == ["Events cannot be created: may not create events (403 Forbidden)"]


async def test_a_silent_server_delays_nothing_and_the_queue_is_bounded(
    server: Scripted, history: History
) -> None:
    history.launches()
    history.has_pods()
    for _ in range(3000):  # each returns at once
        history.recorder.job_saved(history.job, history.job.running(NOON))
    assert len(vars(history.recorder)["_queue"]) == 1000
    await history.recorder.close()


async def test_a_launch_is_reported_once_its_pod_exists_or_the_job_ends(
    server: Scripted, history: History
) -> None:
    server.answers = [CREATED] * 2
    history.launches()
    await history.recorder.flush()
    assert server.requests == []
    history.ends(JobState.FAILED, LOST)
    await history.recorder.flush()
    assert sent(server) == [("Launching", "Normal", None), ("Failed", "Warning", None)]


async def test_no_state_remains_of_an_ended_group(server: Scripted, history: History) -> None:
    server.answers = [CREATED] * 10
    history.launches()
    history.has_pods()
    history.ends(JobState.FAILED, LOST)
    await history.recorder.flush()
    kept = vars(history.recorder)
    assert [len(kept[name]) for name in ("_masters", "_waiting", "_queue")] == [0, 0, 0]

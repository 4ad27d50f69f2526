"""What becomes of a job is told as Events on its master pod, beside the work and never in its way."""

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
from job_tracker.domain.job import Ending, Job, JobState, new_job
from job_tracker.domain.policies import RetryPolicy
from tests.support import schemas
from tests.support.catalog import algorithm_of, pod_resolver
from tests.support.jobs import NOON, spec
from tests.support.scripted_api import Scripted, says, status

SETTINGS = KubernetesSettings(namespace="here", instance="ours")
LOST = Diagnosis(
    category=Category.NODE_LOST, summary="Node a is gone.", resolution="Wait for it.", retryable=True
)
TOLD = says({})


class Life:
    """A job's life as the tracker writes it, with the recorder looking on."""

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
        """Decided, the group stopped, and written."""
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
def life(recorder: EventRecorder, groups: Groups) -> Life:
    return Life(recorder, groups)


def told(server: Scripted) -> list[tuple[str, str, str | None]]:
    """Reason, type and the uid of the pod of each Event that was sent."""
    return [
        (body["reason"], body["type"], body["involvedObject"].get("uid"))
        for body in (body for body in server.bodies if body)
    ]


async def test_each_move_is_told_on_the_master(server: Scripted, life: Life) -> None:
    server.answers = [TOLD] * 10
    life.launches()
    life.has_pods()
    await life.recorder.flush()
    life.saves(life.job.running(NOON))
    life.ends(JobState.BACKOFF, LOST)
    life.saves(life.job.queued_again(NOON))
    await life.recorder.flush()
    first = "uid-of-program-1-master"
    assert told(server) == [
        ("Launching", "Normal", first),
        ("Running", "Normal", first),
        ("Retrying", "Warning", first),
    ]
    server.bodies.clear()
    life.launches()
    life.has_pods()
    await life.recorder.flush()
    life.ends(JobState.FAILED, LOST)
    await life.recorder.flush()
    second = "uid-of-program-1-r1-master"
    assert told(server) == [("Launching", "Normal", second), ("Failed", "Warning", second)]
    assert server.bodies[-1]["message"] == (
        "Node a is gone. Wait for it. No attempt follows attempt 2 of at most 2."
    )


async def test_an_end_that_the_api_has_decided_is_told_when_it_is_done(server: Scripted, life: Life) -> None:
    server.answers = [TOLD] * 10
    life.launches()
    life.has_pods()
    life.saves(life.job.running(NOON))
    # Somebody else writes the decision: the tracker reads it, and stops the group.
    life.job = life.job.decided(Ending(JobState.CANCELLED, NOON))
    life.has_ended()
    await life.recorder.flush()
    assert told(server)[-1] == ("Cancelled", "Normal", "uid-of-program-1-master")


async def test_success_is_told_once(server: Scripted, life: Life) -> None:
    server.answers = [TOLD] * 10
    life.launches()
    life.has_pods()
    life.saves(life.job.running(NOON))
    life.saves(life.job.observed(()))
    life.ends(JobState.SUCCEEDED)
    await life.recorder.flush()
    assert [reason for reason, *_ in told(server)] == ["Launching", "Running", "Succeeded"]


async def test_a_job_without_a_group_is_no_pod_s_business(server: Scripted, life: Life) -> None:
    life.saves(life.job.ended(Ending(JobState.CANCELLED, NOON), NOON))
    await life.recorder.flush()
    assert server.requests == []


async def test_an_event_is_valid_and_its_name_says_what_it_tells(server: Scripted, life: Life) -> None:
    server.answers = [TOLD]
    life.launches()
    life.has_pods()
    await life.recorder.flush()
    (event,) = server.bodies
    for version in schemas.VERSIONS:
        schemas.check(event, version)
    assert server.requests == ["POST /api/v1/namespaces/here/events"]
    assert event["metadata"]["name"].startswith("program-1-master.launching.")
    assert event["metadata"]["namespace"] == event["involvedObject"]["namespace"] == "here"
    assert event["metadata"]["labels"]["training-service/job-id"] == "1"


async def test_a_move_that_is_told_again_has_the_name_that_it_had_and_job_1_of_another_store_has_not(
    server: Scripted, recorder: EventRecorder, groups: Groups, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers = [TOLD, status(409, "AlreadyExists"), TOLD]
    lives = [Life(recorder, groups) for _ in range(3)]
    lives[2].job = new_job(1, lives[2].job.spec, NOON + timedelta(days=1))
    for each in lives:
        each.launches()
        each.has_pods()
        await recorder.flush()
    first, again, another = [body["metadata"]["name"] for body in server.bodies]
    assert first == again
    assert first != another
    assert caplog.text == ""


async def test_what_a_tenant_wrote_makes_no_event_too_long(server: Scripted, life: Life) -> None:
    server.answers = [TOLD] * 2
    life.launches()
    life.has_pods()
    long = Diagnosis(category=Category.UNKNOWN, summary="ü" * 5000, resolution="Shorten it.")
    life.ends(JobState.FAILED, long)
    await life.recorder.flush()
    assert len(server.bodies[-1]["message"].encode()) <= 1024


async def test_an_api_server_that_is_away_or_says_no_fails_nothing_and_is_mentioned_once(
    server: Scripted, life: Life, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers = [status(403, "Forbidden", "may not create events")] * 3
    life.launches()
    life.has_pods()
    life.saves(life.job.running(NOON))
    life.ends(JobState.SUCCEEDED)
    await life.recorder.flush()
    assert caplog.messages == ["events cannot be told: may not create events (403 Forbidden)"]


async def test_one_that_does_not_answer_holds_nothing_up_and_no_more_is_kept_than_can_be_told(
    server: Scripted, life: Life
) -> None:
    life.launches()
    life.has_pods()
    for _ in range(3000):  # each returns at once
        life.recorder.job_saved(life.job, life.job.running(NOON))
    assert len(vars(life.recorder)["_untold"]) == 1000
    await life.recorder.close()


async def test_a_launch_is_told_when_its_pod_is_there_and_also_if_there_is_never_one(
    server: Scripted, life: Life
) -> None:
    server.answers = [TOLD] * 2
    life.launches()
    await life.recorder.flush()
    assert server.requests == []
    life.ends(JobState.FAILED, LOST)
    await life.recorder.flush()
    assert told(server) == [("Launching", "Normal", None), ("Failed", "Warning", None)]


async def test_nothing_is_kept_of_a_group_that_has_ended(server: Scripted, life: Life) -> None:
    server.answers = [TOLD] * 10
    life.launches()
    life.has_pods()
    life.ends(JobState.FAILED, LOST)
    await life.recorder.flush()
    kept = vars(life.recorder)
    assert [len(kept[name]) for name in ("_masters", "_held", "_untold")] == [0, 0, 0]

"""The message of a status is correct."""

from dataclasses import replace
from pathlib import Path

import pytest

from job_tracker.common.clock import utc_now
from job_tracker.domain.diagnosis import Category, Diagnosis
from job_tracker.domain.eviction import Eviction, EvictionReason
from job_tracker.domain.job import Preemption, PreemptionReason
from tests.support.api_service import Service
from training_service._generated import training_service_pb2 as pb

CRASHED = Diagnosis(
    category=Category.CRASHED,
    summary="Rank 1 exited with code 1.",
    resolution="Mend the training code.",
    rank=1,
)
TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
ValueError: LR is 40,\x1b[2J which diverges
::progress:: {"step": 3}

"""


async def failed(service: Service, why: Diagnosis) -> str:
    job = await service.store.get(await service.train())
    launched = await service.store.update(job.admitted(utc_now()))
    failing = await service.store.update(launched.failed(why, utc_now()))
    assert failing.ending is not None
    await service.store.update(failing.ended(failing.ending, utc_now()))
    return (await service.status(job.id)).message


async def test_the_message_of_a_failure_has_the_last_line_of_the_log(untracked: Service) -> None:
    message = await failed(untracked, replace(CRASHED, detail=TRACEBACK))
    assert message == (
        'Rank 1 exited with code 1. Last line: "ValueError: LR is 40,\\x1b[2J which diverges". '
        "Mend the training code."
    )
    assert len(await failed(untracked, replace(CRASHED, detail="x" * 10_000))) < 300
    for nothing in ("", "\n \n", "Rank 1 exited with code 1."):
        assert "Last line" not in await failed(untracked, replace(CRASHED, detail=nothing))


async def test_the_message_of_a_stall_has_no_line_of_a_rank_that_waits(untracked: Service) -> None:
    stalled = replace(CRASHED, category=Category.STALLED, detail="Rank 0:\n  train.py:9 in all_reduce")
    assert await failed(untracked, stalled) == "Rank 1 exited with code 1. Mend the training code."


async def test_the_message_of_a_failure_has_its_cause(untracked: Service) -> None:
    message = await failed(
        untracked, replace(CRASHED, detail=TRACEBACK, cause="KeyError: 'label' (a.py, line 3)")
    )
    assert message == (
        "Rank 1 exited with code 1. Cause: \"KeyError: 'label' (a.py, line 3)\". Mend the training code."
    )


async def test_the_message_says_if_there_is_no_model(service: Service) -> None:
    without = await service.seen(await service.train(), pb.succeed)
    assert without.HasField("has_model")
    assert not without.has_model
    assert without.message == (
        f"Training succeeded, but it has written no model: there is no file at {without.model_uri} "
        "(MODEL_URI of the master)."
    )
    job_id = await service.train({"RUN_SECONDS": "forever"})
    running = await service.seen(job_id, pb.running)
    assert not running.HasField("has_model")
    Path(running.model_uri).mkdir(parents=True)
    (Path(running.model_uri) / "model.pt").write_bytes(b"weights")
    service.world.end_rank((await service.store.get(job_id)).group, 0, 0)
    made = await service.seen(job_id, pb.succeed)
    assert (made.has_model, made.message) == (True, f"Training succeeded; the model is at {made.model_uri}.")


async def test_the_message_says_if_the_model_is_unknown(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job_tracker.files.artifacts._PROMPT_SECONDS", 0.0)  # storage always takes longer
    ended = await service.seen(await service.train(), pb.succeed)
    assert not ended.HasField("has_model")
    assert ended.message == f"Training succeeded; its model, if it has written one, is at {ended.model_uri}."


async def test_a_status_says_by_whom_a_job_was_evicted(untracked: Service) -> None:
    job = await untracked.store.get(await untracked.train())
    launched = await untracked.store.update(job.admitted(utc_now()))
    drain = Eviction(why=EvictionReason.DRAINED, at=utc_now(), rank=2, machine="n7")
    stopping = await untracked.store.update(launched.evicted(drain, utc_now()))
    status = await untracked.status(job.id)
    sentence = "Evicted: rank 2 was evicted from n7 through the API of the cluster."
    assert status.message == f"{sentence} The group is being stopped."
    assert stopping.ending is not None
    await untracked.store.update(stopping.ended(stopping.ending, utc_now()))
    status = await untracked.status(job.id)
    assert (status.status, status.evictions, status.preemptions) == (pb.queuing, 1, 0)
    assert (status.moves[-1].evicted, status.moves[-1].preempted) == (sentence, "")
    assert sentence in status.message
    assert status.max_attempts == job.spec.retry.max_attempts + 1


async def test_a_status_says_for_whom_a_job_gave_way(untracked: Service) -> None:
    job = await untracked.store.get(await untracked.train())
    launched = await untracked.store.update(job.admitted(utc_now()))
    why = Preemption(by_job=9, why=PreemptionReason.PRIORITY, by_project=job.spec.project)
    stopping = await untracked.store.update(launched.preempted(why, utc_now()))
    status = await untracked.status(job.id)
    sentence = "Preempted: job 9 has a higher priority."
    assert (status.ending, status.preemptions) == (True, 0)
    assert status.message == f"{sentence} The group is being stopped."
    assert stopping.ending is not None
    await untracked.store.update(stopping.ended(stopping.ending, utc_now()))
    status = await untracked.status(job.id)
    assert (status.status, status.preemptions, status.moves[-1].preempted) == (pb.queuing, 1, sentence)
    assert sentence in status.message
    assert status.max_attempts == job.spec.retry.max_attempts + 1

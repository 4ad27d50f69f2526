"""Pod options in admission: without pods, in digests of requests, and in stored specs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from job_tracker.admission.admission import Admission, JobRequest
from job_tracker.admission.resolution import Resolver
from job_tracker.catalog import Dataset, FixedCatalog
from job_tracker.domain.caller import BUILT_IN
from job_tracker.domain.errors import InvalidField
from job_tracker.domain.group import InstanceOptions, Phase, RankStatus
from job_tracker.domain.job import Ending, JobState
from job_tracker.domain.job_spec import JobSpec
from job_tracker.store import specs
from tests.support.catalog import fake_resolver, pod_resolver
from tests.support.jobs import NOON, job
from tests.support.kubernetes_plans import algorithm

REQUEST = JobRequest(algorithm="a", dataset_id="1", dataset_version="v1", parameters={}, request_key="k")
OPTIONS: dict[str, Any] = {"resources": {"nvidia.com/gpu": "2"}, "labels": {"team": "ml"}}


# The digest of REQUEST by a version without pod options.
_BEFORE = "2696d8a04a002ac9a69d66acac01dc75d05c7abb596ca5a40b13bd134bcfb17c"


def admission_of(storage: Path, resolver: Resolver) -> Admission:
    return Admission(
        FixedCatalog(
            {"a": algorithm()}, {"1": Dataset(uri=f"{storage}/versionedDatasets/{{dataset_id}}/{{version}}")}
        ),
        resolver,
        max_processes=64,
        capacity=4,
        models_uri="/models",
        checkpoints_uri="/checkpoints",
    )


async def accepted(storage: Path, options: dict[str, Any], resolver: Resolver) -> JobSpec:
    return await admission_of(storage, resolver).check(BUILT_IN, replace(REQUEST, pod_options=options))


async def test_allowed_options_are_kept(storage: Path) -> None:
    kept = await accepted(storage, OPTIONS, pod_resolver({"a": algorithm()}, allowed_labels=["team"]))
    assert kept.pod_options == InstanceOptions(**OPTIONS)
    assert kept.group.trainers.resources == OPTIONS["resources"]
    assert specs.loaded(specs.dumped(kept)) == kept


async def test_a_service_without_pods_refuses_options(storage: Path) -> None:
    with pytest.raises(InvalidField, match="pod_options: must be empty"):
        await accepted(storage, OPTIONS, fake_resolver({"a": algorithm()}))
    assert (await accepted(storage, {}, fake_resolver({"a": algorithm()}))).pod_options == InstanceOptions()


def test_the_digest_of_a_request_includes_its_options(storage: Path) -> None:
    admission = admission_of(storage, pod_resolver({"a": algorithm()}))
    plain, other = (
        admission.key_of(BUILT_IN, REQUEST),
        admission.key_of(BUILT_IN, replace(REQUEST, pod_options=OPTIONS)),
    )
    assert plain != other
    assert plain is not None
    # Unchanged from versions without options, so that stored keys still match.
    assert plain.digest.hex() == _BEFORE


def test_a_note_is_removed_when_the_wait_ends() -> None:
    waiting = replace(job(), ranks=(RankStatus(0, Phase.PENDING, note="Unschedulable"),))
    ended = waiting.ended(Ending(JobState.CANCELLED, NOON), NOON)
    assert ended.ranks == (RankStatus(0, Phase.STOPPED),)

"""A filter is the same in a URL and on the page, and bad values are named."""

from datetime import UTC, datetime

import pytest
from starlette.datastructures import QueryParams

from job_tracker.domain.caller import Role
from job_tracker.domain.errors import InvalidField
from job_tracker.domain.job import JobState
from tests.support.callers import caller_with
from training_service.web.filters import wanted

ADA = caller_with(Role.VIEWER)


def test_a_url_gives_the_filter_and_the_filter_its_url() -> None:
    query = (
        "state=running&state=failed&project=vision&algorithm=a&name=n&by=bob&tag=x&tag=y"
        "&since=2026-11-24+12%3A00&until=2026-11-25T00%3A00%2B01%3A00&size=20"
    )
    found = wanted(QueryParams(query))
    assert found.query() == query
    where = found.where(ADA)
    assert where.states == {JobState.RUNNING, JobState.FAILED}
    assert where.projects == frozenset({"vision"})
    assert (where.algorithm, where.name_prefix, where.submitted_by) == ("a", "n", "bob")
    assert where.tags == {"x", "y"}
    assert where.since == datetime(2026, 11, 24, 12, tzinfo=UTC)
    assert where.until == datetime(2026, 11, 24, 23, tzinfo=UTC)
    assert found.query(before=7).endswith("&before=7")


def test_an_empty_url_has_all_jobs_of_the_caller() -> None:
    found = wanted(QueryParams("state=&project=&tag=&since="))
    assert not found.is_narrow
    assert found.where(ADA).projects is None


def test_me_is_the_caller() -> None:
    assert wanted(QueryParams("by=me")).where(ADA).submitted_by == ADA.name


def test_a_bad_state_is_quoted_even_behind_an_empty_one() -> None:
    with pytest.raises(InvalidField, match="'no' is not a state"):
        wanted(QueryParams("state=&state=no"))


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("state=no", "state"),
        ("project=../x", "project"),
        ("name=" + "n" * 201, "name"),
        ("name=a%00b", "name"),
        ("tag=" + "t" * 1000, "tag"),
        ("since=yesterday", "since"),
        ("before=0", "before"),
        ("before=x", "before"),
        ("before=" + "9" * 5000, "before"),
        ("before=%C2%B2", "before"),
        ("size=201", "size"),
    ],
)
def test_a_bad_value_is_named_with_its_field(query: str, field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        wanted(QueryParams(query)).where(ADA)
    assert caught.value.field.startswith(field)

"""Names of groups and instances: readable, and valid for every engine."""

import re
from collections.abc import Iterator

from hypothesis import assume, example, given
from hypothesis import strategies as st

from job_tracker.domain import naming

# RFC 1035: the rule for Services in Kubernetes, the strictest for any of these names.
DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")

ALGORITHMS = st.one_of(
    st.text(),
    st.text(alphabet="abcxyz0159-", max_size=80),
    st.from_regex(r"[a-z]([a-z0-9-]{0,70}[a-z0-9])?", fullmatch=True),
)
JOB_IDS = st.integers(min_value=1, max_value=2**31 - 1)
ATTEMPTS = st.integers(min_value=1, max_value=10_000)
RANKS = st.integers(min_value=0, max_value=999_999)


def outside_names(group: str, rank: int) -> Iterator[str]:
    """Return all names that are derived from one rank of a group."""
    yield naming.instance_name(group, rank)
    yield naming.instance_name(group, rank, "evaluator")
    yield f"{group}-master-service"


def test_names_of_a_job_for_kubectl() -> None:
    group = naming.group_name("intent-classification", 1, 1)
    assert [naming.instance_name(group, rank) for rank in range(3)] == [
        "intent-classification-1-master",
        "intent-classification-1-1-worker",
        "intent-classification-1-2-worker",
    ]


def test_later_attempts_have_a_suffix() -> None:
    groups = [naming.group_name("intent-classification", 12, attempt) for attempt in (1, 2, 3)]
    assert groups == [
        "intent-classification-12",
        "intent-classification-12-r1",
        "intent-classification-12-r2",
    ]
    assert naming.instance_name(groups[1], 1) == "intent-classification-12-r1-1-worker"


def test_names_contain_the_role_and_rank_0_is_always_the_master() -> None:
    assert naming.instance_name("wide-deep-7", 3, "ps") == "wide-deep-7-3-ps"
    assert naming.instance_name("wide-deep-7", 0, "launcher") == "wide-deep-7-master"


@given(ALGORITHMS, JOB_IDS, ATTEMPTS, RANKS)
@example("", 1, 1, 0)
@example("-", 1, 1, 0)
@example("3d-u-net", 1, 1, 1)
@example("x" * 10_000, 2**31 - 1, 10_000, 999_999)
@example("a" * 39 + "-" * 39, 2**31 - 1, 1, 999_999)
@example("İSTANBUL/\u202egnp\u200b", 1, 1, 1)
def test_every_name_is_a_dns_label(algorithm: str, job_id: int, attempt: int, rank: int) -> None:
    group = naming.group_name(algorithm, job_id, attempt)
    for name in outside_names(group, rank):
        assert DNS_LABEL.fullmatch(name), name


@given(
    st.tuples(ALGORITHMS, JOB_IDS, ATTEMPTS, RANKS),
    st.tuples(ALGORITHMS, JOB_IDS, ATTEMPTS, RANKS),
)
@example(("a", 1, 2, 1), ("a-1-r1", 1, 1, 1))
@example(("a", 1, 1, 1), ("a-1", 1, 1, 1))
@example(("a-1", 11, 1, 0), ("a", 111, 1, 0))
@example(("a", 2, 1, 0), ("a-2-r1", 2, 2, 0))
def test_two_instances_never_share_a_name(
    one: tuple[str, int, int, int], other: tuple[str, int, int, int]
) -> None:
    # A job has one algorithm, so one id with two algorithms cannot occur.
    assume(one[1:] != other[1:] and (one[1] != other[1] or one[0] == other[0]))
    names = [naming.instance_name(naming.group_name(*each[:3]), each[3]) for each in (one, other)]
    assert names[0] != names[1]


@given(ALGORITHMS, JOB_IDS, JOB_IDS, ATTEMPTS, ATTEMPTS)
@example("a", 1, 1, 1, 2)
@example("a" * 100, 1, 11, 1, 1)
def test_two_groups_of_an_algorithm_never_share_a_name(
    algorithm: str, job_id: int, other_id: int, attempt: int, other_attempt: int
) -> None:
    assume((job_id, attempt) != (other_id, other_attempt))
    one = naming.group_name(algorithm, job_id, attempt)
    assert one != naming.group_name(algorithm, other_id, other_attempt)


@given(st.text(), st.integers(min_value=20, max_value=128))
@example("", 20)
def test_a_slug_of_any_text_is_valid_and_not_too_long(text: str, length: int) -> None:
    slug = naming.slug(text, length)
    assert len(slug) <= length
    assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", slug), slug


def test_texts_that_are_shortened_have_different_slugs() -> None:
    texts = [
        "My Model",
        "my model",
        "my/model",
        "my_model",
        "my-model",
        "my--model",
        "мой",
        "模型",
        "x" * 200,
    ]
    slugs = [naming.slug(text, 63) for text in texts]
    assert len(set(slugs)) == len(texts)
    assert slugs[4] == "my-model"

"""The claim of a launch on an object that has the wanted name."""

import pytest

from job_tracker.backends.shared.claims import Claim, claim_of


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("may_have_run", [False, True])
@pytest.mark.parametrize("is_of_plan", [False, True])
@pytest.mark.parametrize(
    ("is_of_group", "is_of_job", "claim"),
    [(False, True, Claim.TAKEN), (False, False, Claim.TAKEN), (True, False, Claim.REPLACE)],
)
def test_foreign_objects_stay_and_those_of_another_store_are_replaced(
    is_of_group: bool, is_of_job: bool, is_of_plan: bool, may_have_run: bool, is_lost: bool, claim: Claim
) -> None:
    found = claim_of(
        is_of_group=is_of_group,
        is_of_job=is_of_job,
        is_of_plan=is_of_plan,
        may_have_run=may_have_run,
        is_lost=is_lost,
    )
    assert found is claim


@pytest.mark.parametrize(
    ("is_of_plan", "may_have_run", "is_lost", "claim"),
    [
        (True, True, False, Claim.ADOPT),
        (True, False, False, Claim.ADOPT),
        (True, True, True, Claim.RESTART),
        (False, True, False, Claim.OTHER_PLAN),
        (False, True, True, Claim.OTHER_PLAN),
        (False, False, False, Claim.REPLACE),
    ],
)
def test_objects_of_the_job_are_adopted_unless_their_plan_or_restarts_differ(
    is_of_plan: bool, may_have_run: bool, is_lost: bool, claim: Claim
) -> None:
    found = claim_of(
        is_of_group=True,
        is_of_job=True,
        is_of_plan=is_of_plan,
        may_have_run=may_have_run,
        is_lost=is_lost,
    )
    assert found is claim

"""Treatment of a pod or container that has the name of one that a launch wants."""

import pytest

from job_tracker.backends.shared.claims import Claim, claim_of


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("may_have_run", [False, True])
@pytest.mark.parametrize("is_of_plan", [False, True])
@pytest.mark.parametrize(
    ("is_of_group", "is_of_job", "claim"),
    [(False, True, Claim.TAKEN), (False, False, Claim.TAKEN), (True, False, Claim.REPLACE)],
)
def test_objects_of_others_stay_and_those_of_another_store_are_replaced(
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
        (False, True, False, Claim.PLANNED_OTHERWISE),
        (False, True, True, Claim.PLANNED_OTHERWISE),
        (False, False, False, Claim.REPLACE),
    ],
)
def test_objects_of_the_job_are_adopted_unless_another_start_or_plan_is_wanted(
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

"""Each kind of call has a limit, which 0 turns off."""

import pytest
from pydantic import ValidationError

from job_tracker.domain.access import TokenLimits
from job_tracker.domain.call_kinds import CallKind
from training_service.settings.limits import LimitSettings


@pytest.mark.parametrize("kind", CallKind)
def test_each_kind_has_a_rate_and_a_burst(kind: CallKind) -> None:
    rate = LimitSettings().rate_of(kind)
    assert rate is not None
    assert rate.burst >= 10 * rate.per_second, "a short rush of calls is no flood"
    given = LimitSettings.model_validate({f"{kind}_rate": 2.5, f"{kind}_burst": 7}).rate_of(kind)
    assert given is not None
    assert (given.per_second, given.burst) == (2.5, 7)
    assert LimitSettings.model_validate({f"{kind}_rate": 0}).rate_of(kind) is None


def test_invalid_tokens_have_a_rate_and_tokens_a_number() -> None:
    assert LimitSettings(failed_token_rate=0).failed_tokens is None
    failed = LimitSettings(failed_token_rate=3, failed_token_burst=4).failed_tokens
    assert failed is not None
    assert (failed.per_second, failed.burst) == (3, 4)
    assert LimitSettings(tokens=8, tokens_of_project=5).of_tokens == TokenLimits(in_all=8, of_project=5)


@pytest.mark.parametrize(
    "wrong", [{"read_rate": -1}, {"read_burst": 0}, {"open_streams": 0}, {"tokens": 0}, {"reads": 5}]
)
def test_other_values_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        LimitSettings.model_validate(wrong)

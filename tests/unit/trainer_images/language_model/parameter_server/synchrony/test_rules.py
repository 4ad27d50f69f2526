import pytest
from language_model.parameter_server.synchrony import Rule, Synchrony, rule_of
from trainer_kit.errors import ParameterError


@pytest.mark.parametrize(
    ("synchrony", "numbers", "rule"),
    [
        (Synchrony.SYNCHRONOUS, {}, Rule(5, in_step=True)),
        (Synchrony.BACKUP_WORKERS, {"backup_workers": 2}, Rule(3, in_step=True)),
        (Synchrony.BACKUP_WORKERS, {"backup_workers": 0}, Rule(5, in_step=True)),
        (Synchrony.SOFTSYNC, {"softsync": 1}, Rule(5, weakens_stale=True)),
        (Synchrony.SOFTSYNC, {"softsync": 2}, Rule(2, weakens_stale=True)),
        (Synchrony.SOFTSYNC, {"softsync": 5}, Rule(1, weakens_stale=True)),  # asynchronous, by staleness
        (Synchrony.ASYNCHRONOUS, {}, Rule(1)),
        (Synchrony.DELAY_COMPENSATED, {"compensation": 0.5}, Rule(1, compensation=0.5)),
    ],
)
def test_each_synchrony_is_a_rule(synchrony: Synchrony, numbers: dict[str, float], rule: Rule) -> None:
    assert rule_of(synchrony, 5, **numbers) == rule  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("synchrony", "workers", "numbers", "said"),
    [
        (Synchrony.SYNCHRONOUS, 0, {}, "leaves a parameter server no worker"),
        (Synchrony.BACKUP_WORKERS, 3, {"backup_workers": 3}, "BACKUP_WORKERS 3 of 3 workers leave none"),
        (Synchrony.SOFTSYNC, 3, {"softsync": 4}, "SOFTSYNC must be from 1 to the 3 workers, but is 4"),
        (Synchrony.SOFTSYNC, 3, {"softsync": 0}, "SOFTSYNC must be from 1 to the 3 workers, but is 0"),
    ],
)
def test_numbers_that_cannot_be_are_named(
    synchrony: Synchrony, workers: int, numbers: dict[str, int], said: str
) -> None:
    with pytest.raises(ParameterError, match=said):
        rule_of(synchrony, workers, **numbers)

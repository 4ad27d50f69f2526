"""The number of instances that is worth it, by efficiency and by price."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_service.client.scaling.worth import by_efficiency, by_price, cost_of_example


def amdahl(serial: float) -> object:
    return lambda n: 1 / (serial + (1 - serial) / n)


def test_instances_are_added_while_each_adds_enough() -> None:
    def rate(n: int) -> float:
        return {1: 100, 2: 190, 3: 260, 4: 300, 5: 390}[n]

    assert by_efficiency(rate, 0.5, 5) == 3  # the fourth adds 40 %, so the fifth (90 %) is not tried
    assert by_efficiency(rate, 0.95, 5) == 1
    assert by_efficiency(rate, 0.1, 5) == 5


def test_an_example_costs_least_where_price_and_waiting_meet() -> None:
    rate = amdahl(0.1)
    assert by_price(rate, 1.0, 0.0, 64) == 1  # type: ignore[arg-type]
    assert by_price(rate, 0.0, 1.0, 64) == 64  # type: ignore[arg-type]
    # (n p + v)(s + (1-s)/n) is least at n = sqrt(v (1-s) / (p s))
    assert by_price(rate, 1.0, 16.0, 64) == 12  # type: ignore[arg-type]


@given(serial=st.floats(0.001, 0.999), price=st.floats(0.01, 100))
def test_a_higher_value_of_time_never_uses_fewer_instances(serial: float, price: float) -> None:
    used = [by_price(amdahl(serial), price, value, 50) for value in (0, 1, 10, 100, 1000)]  # type: ignore[arg-type]
    assert used == sorted(used)


def test_an_example_costs_its_share_of_an_hour() -> None:
    assert cost_of_example(rate=200.0, instances=4, price=1.8) == pytest.approx(1e-5)


@pytest.mark.parametrize("least", [0, -1, 1.1, float("nan")])
def test_an_impossible_efficiency_is_refused(least: float) -> None:
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        by_efficiency(float, least, 4)


@pytest.mark.parametrize(("price", "value"), [(-1, 1), (1, -1), (0, 0), (float("inf"), 1)])
def test_impossible_prices_are_refused(price: float, value: float) -> None:
    with pytest.raises(ValueError, match=r"must be 0 or more|both 0"):
        by_price(float, price, value, 4)

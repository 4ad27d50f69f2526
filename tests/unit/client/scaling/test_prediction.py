"""Larger numbers of instances are predicted from one and two."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_service.client.scaling.laws import Scaling
from training_service.client.scaling.prediction import Network, predict

NETWORK = Network(latency=1e-3, bandwidth=1e8, bytes_a_step=4e7, messages=2)


def test_a_ring_sends_as_much_as_published() -> None:
    assert NETWORK.ring(1) == 0
    assert NETWORK.ring(4) == pytest.approx(2 * 3 / 4 * 0.4 + 2 * 3 * 1e-3 * 2)


@given(
    exposed=st.floats(0, 1), rest=st.floats(0, 1), one=st.floats(0.1, 100), scaling=st.sampled_from(Scaling)
)
def test_a_training_that_is_work_and_its_network_is_predicted(
    exposed: float, rest: float, one: float, scaling: Scaling
) -> None:
    rest = rest if exposed == 1 else 0.0

    def real(n: int) -> float:
        work = one / n if scaling is Scaling.STRONG else one
        return work + exposed * NETWORK.ring(n) + rest * (n - 1) / n

    prediction = predict(real(1), real(2), scaling, NETWORK)
    for n in (1, 2, 3, 4, 8):
        assert prediction.seconds(n) == pytest.approx(real(n), rel=1e-6)


def test_without_a_network_the_prediction_is_amdahls_law() -> None:
    prediction = predict(10.0, 5.5, Scaling.STRONG)
    assert prediction.speed_up(8) == pytest.approx(1 / (0.1 + 0.9 / 8))


def test_a_second_instance_that_is_faster_than_its_share_leaves_no_rest() -> None:
    assert predict(10.0, 4.0, Scaling.STRONG, NETWORK).seconds(4) == pytest.approx(2.5)


@given(one=st.floats(0.1, 100), ratio=st.floats(0.4, 3))
def test_more_instances_never_make_a_weak_step_faster(one: float, ratio: float) -> None:
    prediction = predict(one, one * ratio, Scaling.WEAK, NETWORK)
    steps = [prediction.seconds(n) for n in range(1, 40)]
    assert steps == sorted(steps)


@pytest.mark.parametrize("times", [(0.0, 1.0), (1.0, -1.0), (math.nan, 1.0), (1.0, math.inf)])
def test_a_time_that_cannot_be_is_refused(times: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        predict(*times, Scaling.STRONG)


@pytest.mark.parametrize(
    ("field", "value"), [("latency", -1.0), ("bandwidth", 0.0), ("bytes_a_step", math.nan), ("messages", 0)]
)
def test_a_network_that_cannot_be_is_refused(field: str, value: float) -> None:
    values = {"latency": 1e-3, "bandwidth": 1e8, "bytes_a_step": 4e7, "messages": 1, field: value}
    with pytest.raises(ValueError, match=f"{field} is"):
        Network(**values)  # type: ignore[arg-type]

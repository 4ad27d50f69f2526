import pytest
from language_model.batch_size import StepSize, at_step, grown, scaled, warmed_up
from language_model.choices import RateScaling
from language_model.layout import Layout


def test_linear_scaling_multiplies_the_rate_like_the_batch() -> None:
    assert scaled(0.1, 8192, 256, RateScaling.LINEAR) == pytest.approx(
        3.2
    )  # Goyal et al., ImageNet in 1 hour


def test_square_root_scaling_keeps_the_noise_of_a_step() -> None:
    assert scaled(0.1, 1024, 256, RateScaling.SQRT) == pytest.approx(0.2)


@pytest.mark.parametrize("scaling", [RateScaling.LINEAR, RateScaling.SQRT])
def test_a_batch_of_the_reference_size_has_the_reference_rate(scaling: RateScaling) -> None:
    assert scaled(0.1, 256, 256, scaling) == 0.1


def test_the_rate_warms_up_by_equal_amounts_and_stays() -> None:
    rates = [warmed_up(0.1, 0.5, step, steps=3) for step in range(1, 7)]
    assert rates == pytest.approx([0.2, 0.3, 0.4, 0.5, 0.5, 0.5])


def test_a_scaled_rate_warms_up_from_the_rate_of_the_small_batch() -> None:
    layout = Layout(batch_size=64, reference_batch_size=16, lr=0.1, lr_scaling=RateScaling.LINEAR, warm_up=2)
    assert [at_step(step, layout).learning_rate for step in (1, 2, 3, 100)] == pytest.approx(
        [0.2, 0.3, 0.4, 0.4]
    )


def test_a_rate_without_scaling_warms_up_from_zero() -> None:
    layout = Layout(lr=0.4, warm_up=3)
    assert [at_step(step, layout).learning_rate for step in (1, 2, 4, 5)] == pytest.approx(
        [0.1, 0.2, 0.4, 0.4]
    )


def test_without_warm_up_the_first_step_has_the_full_rate() -> None:
    assert at_step(1, Layout(lr=0.4, warm_up=0)).learning_rate == 0.4


def test_the_batch_grows_at_its_steps_and_the_rate_stays() -> None:
    layout = Layout(batch_size=16, grow_at=(10, 20), growth=5, lr=0.1, warm_up=0)
    sizes = [at_step(step, layout) for step in (9, 10, 19, 20)]
    assert sizes == [StepSize(size, 0.1) for size in (16, 80, 80, 400)]


def test_at_the_largest_batch_the_rate_decays_instead() -> None:
    assert grown(StepSize(16, 1.0), times=3, growth=4, largest=100) == StepSize(64, 1.0 / 16)


def test_a_growing_batch_and_a_falling_rate_reduce_the_noise_equally() -> None:
    for times in range(5):
        size = grown(StepSize(16, 1.0), times, growth=2, largest=64)
        assert size.learning_rate / size.batch_size == 1.0 / 16 / 2**times

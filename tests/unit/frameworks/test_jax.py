"""What JAX is told, whole: as its documentation has it."""

from job_tracker.frameworks import FRAMEWORKS
from tests.support.layouts import THREE


def test_jax_is_told_what_initialize_is_to_be_given() -> None:
    assert FRAMEWORKS["jax"].environment(THREE, 1) == {
        "JAX_COORDINATOR_ADDRESS": "h0:20000",
        "JAX_NUM_PROCESSES": "3",
        "JAX_PROCESS_ID": "1",
    }

"""The complete environment for JAX, compared with its documentation."""

from job_tracker.frameworks import FRAMEWORKS
from tests.support.layouts import THREE


def test_jax_gets_the_arguments_of_initialize() -> None:
    assert FRAMEWORKS["jax"].environment(THREE, 1) == {
        "JAX_COORDINATOR_ADDRESS": "h0:20000",
        "JAX_NUM_PROCESSES": "3",
        "JAX_PROCESS_ID": "1",
    }

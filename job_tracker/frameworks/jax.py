"""JAX: the arguments of `jax.distributed.initialize`, as environment variables."""

from collections.abc import Mapping

from job_tracker.frameworks.base import GroupLayout, StartedAsIs, Traits


class Jax(StartedAsIs):
    """Processes that meet at a coordinator in rank 0 (docs.jax.dev, "Multi-host")."""

    traits = Traits()

    def environment(self, layout: GroupLayout, rank: int) -> Mapping[str, str]:
        """Return the environment variables with which instance number `rank` joins its group."""
        return {
            "JAX_COORDINATOR_ADDRESS": str(layout.master),
            "JAX_NUM_PROCESSES": str(layout.size),
            "JAX_PROCESS_ID": str(rank),
        }

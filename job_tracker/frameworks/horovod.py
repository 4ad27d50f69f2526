"""Horovod: the variables of its launcher, for a Gloo rendezvous on the master."""

from collections.abc import Mapping

from job_tracker.frameworks.base import GroupLayout, StartedAsIs, Traits, group_variables


class Horovod(StartedAsIs):
    """Processes that meet at a server in rank 0, without ssh (horovod/runner/gloo_run.py).

    Each instance counts as a host with one process.
    """

    traits = Traits()

    def environment(self, layout: GroupLayout, rank: int) -> Mapping[str, str]:
        """The environment variables by which the instance `rank` joins its group."""
        size = str(layout.size)
        return {
            **group_variables(layout, rank),
            "HOROVOD_RANK": str(rank),
            "HOROVOD_SIZE": size,
            "HOROVOD_LOCAL_RANK": "0",
            "HOROVOD_LOCAL_SIZE": "1",
            "HOROVOD_CROSS_RANK": str(rank),
            "HOROVOD_CROSS_SIZE": size,
            "HOROVOD_HOSTNAME": f"instance-{rank}",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": layout.master.host,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(layout.master.port),
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
        }

"""Horovod: the variables of its launcher, for a Gloo rendezvous on the master."""

from collections.abc import Mapping

from job_tracker.frameworks.base import GroupLayout, Traits


class Horovod:
    """Processes that meet at a server in rank 0, without ssh (horovod/runner/gloo_run.py).

    Each instance counts as a host. If an instance has several processes, `trainer_kit.horovod_instance`
    starts them.
    """

    traits = Traits(starts_processes=True)

    def environment(self, layout: GroupLayout, rank: int) -> Mapping[str, str]:
        """Return the environment variables with which the first process of an instance joins its group."""
        local_size = layout.processes_per_instance
        places = {"RANK": str(rank * local_size), "LOCAL_RANK": "0"}
        size = str(layout.size * local_size)
        return {
            **places,
            "WORLD_SIZE": size,
            "LOCAL_WORLD_SIZE": str(local_size),
            "MASTER_ADDR": layout.master.host,
            "MASTER_PORT": str(layout.master.port),
            **{f"HOROVOD_{name}": value for name, value in places.items()},
            "HOROVOD_SIZE": size,
            "HOROVOD_LOCAL_SIZE": str(local_size),
            "HOROVOD_CROSS_RANK": str(rank),
            "HOROVOD_CROSS_SIZE": str(layout.size),
            "HOROVOD_HOSTNAME": f"instance-{rank}",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": layout.master.host,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(layout.master.port),
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
        }

    def command(self, layout: GroupLayout, command: tuple[str, ...]) -> tuple[str, ...]:
        """Return `command`; if an instance has several processes, a launcher that runs `command` in each."""
        alone = layout.processes_per_instance == 1
        return command if alone else ("python", "-m", "trainer_kit.horovod_instance", *command)

"""PyTorch: the variables of `torch.distributed`'s env:// rendezvous, and torchrun's own."""

from collections.abc import Mapping

from job_tracker.frameworks.base import GroupLayout

_LAUNCHER = "torchrun"


class PyTorch:
    """Process groups that meet at the master.

    WORLD_SIZE and RANK count processes, as `torch.distributed.init_process_group` reads them
    (pytorch.org, "Environment variable initialization"). PET_* say the same by node, for torchrun, whose
    arguments default to them. With several processes an instance torchrun makes them, and tells each
    the former.
    """

    addresses_every_rank = False

    def environment(self, layout: GroupLayout, rank: int) -> Mapping[str, str]:
        """The group variables of `rank`."""
        port, size = str(layout.master_port), str(layout.size)
        master = {"MASTER_ADDR": layout.hosts[0], "MASTER_PORT": port}
        process = {"WORLD_SIZE": size, "RANK": str(rank), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        return {
            **(process if layout.processes_per_instance == 1 else {}),
            **master,
            "PET_NNODES": size,
            "PET_NODE_RANK": str(rank),
            "PET_NPROC_PER_NODE": str(layout.processes_per_instance),
            **{f"PET_{name}": value for name, value in master.items()},
        }

    def command(self, layout: GroupLayout, command: tuple[str, ...]) -> tuple[str, ...]:
        """The command as it is for one process; else started by torchrun, which reads PET_*."""
        if layout.processes_per_instance == 1 or command[0] == _LAUNCHER:
            return command
        return (_LAUNCHER, "--no-python", *command)

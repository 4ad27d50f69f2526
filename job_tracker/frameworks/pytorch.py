"""PyTorch: the variables of `torch.distributed`'s env:// rendezvous, and torchrun's own."""

from collections.abc import Mapping

from job_tracker.frameworks.base import GroupLayout


class PyTorch:
    """One training process an instance.

    WORLD_SIZE and RANK count processes, as `torch.distributed.init_process_group` reads them
    (pytorch.org, "Environment variable initialization"). PET_* say the same by node, for an image
    whose command is torchrun: its arguments default to them.
    """

    def environment(self, layout: GroupLayout, rank: int) -> Mapping[str, str]:
        """The group variables of `rank`."""
        master, port, size = layout.hosts[0], str(layout.master_port), str(layout.size)
        return {
            "WORLD_SIZE": size,
            "RANK": str(rank),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": master,
            "MASTER_PORT": port,
            "PET_NNODES": size,
            "PET_NODE_RANK": str(rank),
            "PET_NPROC_PER_NODE": "1",
            "PET_MASTER_ADDR": master,
            "PET_MASTER_PORT": port,
        }

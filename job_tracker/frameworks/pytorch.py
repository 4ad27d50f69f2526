"""PyTorch: the variables of `torch.distributed`'s env:// rendezvous, and torchrun's own."""

from collections.abc import Mapping

from job_tracker.domain.group import MASTER_RANK
from job_tracker.frameworks.base import GroupLayout, Traits, group_variables

_LAUNCHER = "torchrun"


class PyTorch:
    """Process groups that meet at the master.

    WORLD_SIZE and RANK, which `torch.distributed.init_process_group` reads, count processes (pytorch.org,
    "Environment variable initialization"). The variables PET_* are the defaults of torchrun's arguments. A
    node of torchrun is one of our instances. In an elastic group, or with several processes in an instance,
    torchrun starts the processes and sets WORLD_SIZE and RANK for each.
    """

    traits = Traits(starts_processes=True, is_elastic=True)

    def environment(self, layout: GroupLayout, rank: int) -> Mapping[str, str]:
        """Return the environment variables with which instance number `rank` joins its group."""
        master = {"MASTER_ADDR": layout.master.host, "MASTER_PORT": str(layout.master.port)}
        group = {
            "PET_NNODES": str(layout.size),
            "PET_NODE_RANK": str(rank),
            "PET_NPROC_PER_NODE": str(layout.processes_per_instance),
            **{f"PET_{name}": value for name, value in master.items()},
        }
        if layout.elastic is not None:
            return {**master, **group, **_rendezvous(layout, rank)}
        return {**(group_variables(layout, rank) if layout.processes_per_instance == 1 else master), **group}

    def command(self, layout: GroupLayout, command: tuple[str, ...]) -> tuple[str, ...]:
        """Return the command, with torchrun before it if torchrun has to start the processes.

        torchrun has to start them if the group is elastic, or if an instance has several processes. If the
        command is torchrun already, it stays as it is. torchrun reads its arguments from PET_*.
        """
        is_plain = layout.processes_per_instance == 1 and layout.elastic is None
        return command if is_plain or command[0] == _LAUNCHER else (_LAUNCHER, "--no-python", *command)


def _rendezvous(layout: GroupLayout, rank: int) -> Mapping[str, str]:
    """Return the variables of torchrun's elastic rendezvous (pytorch.org, "Rendezvous").

    torchrun is the agent of its instance. The master's agent hosts the store of the rendezvous, and
    `is_host` tells each agent whether it is the master's. Without `is_host`, agents would compare host
    names, which may not resolve yet, and which are the same for all agents on one machine.
    """
    assert layout.elastic is not None, "the layout is of an elastic group"
    is_host = "true" if rank == MASTER_RANK else "false"
    return {
        "PET_NNODES": f"{layout.elastic.min_instances}:{layout.size}",
        "PET_MAX_RESTARTS": str(layout.elastic.max_restarts),
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": str(layout.master),
        # By PyTorch's defaults, agents write to the store every 5 s, and an agent counts as lost after 15 s.
        # These defaults are kept: with a shorter interval, the writes of other agents would keep an agent on
        # a very busy machine from joining.
        "PET_RDZV_CONF": f"is_host={is_host}",
        # If torchrun gives rank 0 to a process of this instance, the others connect to it at this address.
        "PET_LOCAL_ADDR": layout.addresses[rank].host,
        # Without this variable, restarted processes find stale addresses in the agents' store (PyTorch 2.13).
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        # Every instance has the same number of processes, so each agent can compute all ranks. Without this
        # variable, the agents tell each other how many processes they have, and all fail after 60 s if one
        # of them is silent at this moment. With this variable, the agents still fail if the one that gets
        # rank 0 is silent, since the others wait for its address.
        "TORCH_ELASTIC_WORKER_IDENTICAL": "1",
    }

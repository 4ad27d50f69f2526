"""torchrun for the fork server. Its rendezvous is as quick as that of a real torchrun.

With each change of a rendezvous, PyTorch records the name of a method, which it finds by inspect.stack. For
each frame of runpy, inspect then looks through all imported modules. In a forked process, this takes 50 ms of
CPU time, and in a real torchrun 1.5 ms. On a machine with 30 busy processes for each core, an agent was so
slow that the changes of other agents always came before its own, and the rendezvous never ended.
"""

from torch.distributed import run
from torch.distributed.elastic.rendezvous import dynamic_rendezvous


def _no_name(depth: int = 2) -> str:  # as PyTorch's function
    return ""


if __name__ == "__main__":
    dynamic_rendezvous.get_method_name = _no_name
    run.main()

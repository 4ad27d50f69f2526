"""Where a process stands in the mesh of pipeline x data x tensor ranks.

Tensor ranks are neighbours, since they talk most; pipeline ranks are the farthest apart.
"""

from dataclasses import dataclass
from typing import Self

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from trainer_kit.group import Group

from language_model.layout import Layout

PIPELINE, DATA, TENSOR = "pipeline", "data", "tensor"


@dataclass(frozen=True)
class Mesh:
    """The ranks of a layout, seen from one of them."""

    whole: DeviceMesh | None
    """None: the process is alone, or computes gradients for a parameter server as if it were."""

    @classmethod
    def of(cls, layout: Layout, group: Group) -> Self:
        """The mesh of the group; every process must call it."""
        if group.size == 1 or layout.is_served:
            return cls(None)
        shape = (layout.pipeline, layout.data, layout.tensor)
        names = (PIPELINE, DATA, TENSOR)
        return cls(init_device_mesh(group.device.type, shape, mesh_dim_names=names))

    def along(self, name: str) -> DeviceMesh:
        """The row of ranks that differ from this one in `name` alone. Only of a process that is not alone."""
        assert self.whole is not None
        return self.whole[name]

    def size(self, name: str) -> int:
        """How many ranks there are in that row."""
        return 1 if self.whole is None else self.along(name).size()

    def rank(self, name: str) -> int:
        """This process's place in that row."""
        return 0 if self.whole is None else self.whole.get_local_rank(name)

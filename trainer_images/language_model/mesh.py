"""The position of a process in the mesh of pipeline x data x tensor ranks.

Tensor ranks are adjacent, because they communicate most. Pipeline ranks are farthest apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from trainer_kit.group import Group

from language_model.layout import Layout

PIPELINE, DATA, TENSOR = "pipeline", "data", "tensor"


@dataclass(frozen=True)
class Mesh:
    """The ranks of a layout, as seen from one of them."""

    whole: DeviceMesh | None
    """All ranks. None if the process is alone, or if there are parameter servers."""
    _parts: Mapping[str, DeviceMesh] = field(default_factory=dict, compare=False)
    """The meshes of the dimensions by name, kept here, because PyTorch takes a millisecond to find one."""

    @classmethod
    def of(cls, layout: Layout, group: Group) -> Self:
        """Create the mesh of the group. Every process must call this."""
        if group.size == 1 or layout.is_served:
            return cls(None)
        shape = (layout.pipeline, layout.data, layout.tensor)
        names = (PIPELINE, DATA, TENSOR)
        whole = init_device_mesh(group.device.type, shape, mesh_dim_names=names)
        return cls(whole, {name: whole[name] for name in names})

    def along(self, name: str) -> DeviceMesh:
        """Return the mesh of this rank along dimension `name`. `whole` must not be None."""
        return self._parts[name]

    def new_group(self, name: str) -> dist.ProcessGroup:
        """Create another group of the ranks along dimension `name`. Every process must call this."""
        assert self.whole is not None
        names = self.whole.mesh_dim_names
        assert names is not None
        ranks = self.whole.mesh.movedim(names.index(name), -1).flatten(0, -2).tolist()
        own: dist.ProcessGroup | None
        own, _ = dist.new_subgroups_by_enumeration(ranks)  # type: ignore[no-untyped-call]
        assert own is not None
        return own

    def size(self, name: str) -> int:
        """Return the number of ranks along dimension `name`."""
        return 1 if self.whole is None else self.along(name).size()

    def rank(self, name: str) -> int:
        """Return the position of this process along dimension `name`."""
        return 0 if self.whole is None else self.whole.get_local_rank(name)

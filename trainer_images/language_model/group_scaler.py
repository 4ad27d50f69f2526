"""The loss scale of PRECISION=fp16, which all processes of a group change together.

P. Micikevicius et al., "Mixed Precision Training", ICLR 2018: the loss is multiplied by a scale, so that
small gradients are not zero in fp16, and gradients are divided by the scale before the step. If a gradient is
infinite or not a number, the step is skipped and the scale is halved. After many steps without such a
gradient, the scale is doubled.
"""

import torch
from torch.optim import Optimizer
from trainer_kit.group import Group

INITIAL_SCALE, GROWTH_INTERVAL = 2.0**16, 2000
"""The defaults of PyTorch."""


class GroupScaler(torch.amp.GradScaler):
    """PyTorch's scaler for ranks that have different gradients: pipeline ranks or tensor ranks.

    If a rank finds a gradient that is not finite, all ranks skip the step. So all ranks have the same
    scale, and all stages and shards of the weights take the same steps.
    """

    def __init__(self, group: Group, *, enabled: bool) -> None:
        """Start with the same scale on all ranks. Without `enabled`, the scale is always 1."""
        super().__init__(group.device.type, INITIAL_SCALE, growth_interval=GROWTH_INTERVAL, enabled=enabled)
        self._group = group
        if enabled:  # PyTorch waits for the first loss, but only the last stage has a loss
            self._lazy_init_scale_growth_tracker(group.device)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients by the scale. Every process must call this."""
        super().unscale_(optimizer)
        if self.is_enabled():
            found = self._found_inf_per_device(optimizer).values()
            [ranks] = self._group.total(sum(each.item() for each in found))
            for each in found:
                each.fill_(float(ranks > 0))

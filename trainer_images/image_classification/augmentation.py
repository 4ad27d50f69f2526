"""Random crops and mirror images, which depend only on the seed, the epoch and the example.

So a run can be repeated, a resumed run continues with the same images, and a group of any size sees the same
images as one process.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad


class Augmentation:
    """The augmentation of one epoch."""

    def __init__(self, examples: int, *, seed: int, epoch: int, padding: int, flip: bool) -> None:
        """Choose a shift of up to `padding` pixels in each direction for each of `examples` images.

        With `flip`, also choose about half of the images to be mirrored.
        """
        chance = np.random.default_rng([seed, epoch])
        self._padding = padding
        self._shifts = torch.from_numpy(chance.integers(0, 2 * padding + 1, (examples, 2)))
        self._mirrored = torch.from_numpy(chance.random(examples) < (0.5 if flip else 0.0))

    def __call__(self, images: Tensor, examples: Tensor) -> Tensor:
        """Return changed copies of N x C x H x W images. `examples` has their N indices among all images."""
        height, width = images.shape[-2:]
        mirrored = self._mirrored[examples].to(images.device)
        images = torch.where(mirrored.view(-1, 1, 1, 1), images.flip(-1), images)
        if not self._padding:
            return images
        shifts = self._shifts[examples].to(images.device)
        rows = shifts[:, :1] + torch.arange(height, device=images.device)
        columns = shifts[:, 1:] + torch.arange(width, device=images.device)
        place = torch.arange(len(images), device=images.device).view(-1, 1, 1)
        # Move the channels to the end, so that rows and columns can be chosen together.
        padded = pad(images, (self._padding,) * 4).permute(0, 2, 3, 1)
        return padded[place, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()

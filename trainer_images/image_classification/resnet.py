"""ResNet-18 for small images (He, Zhang, Ren and Sun, "Deep residual learning", arXiv:1512.03385, 2015).

The first layer is the same as in the paper's CIFAR networks: a convolution of 3 x 3 without stride or
pooling. Stride and pooling would leave nothing of a small image for the later stages. torchvision has the
network only for large images, and its wheels on PyPI do not load beside PyTorch for CPUs.
"""

from torch import Tensor, nn
from torch.nn.functional import relu

_STAGES = 4
_BLOCKS = 2
"""The number of blocks in a stage."""


class Block(nn.Module):
    """Two convolutions, whose result is added to the input."""

    def __init__(self, channels: int, made: int, stride: int) -> None:
        """The block makes `made` channels from `channels` channels."""
        super().__init__()
        self.conv1, self.bn1 = _convolution(channels, made, 3, stride), nn.BatchNorm2d(made)
        self.conv2, self.bn2 = _convolution(made, made, 3), nn.BatchNorm2d(made)
        is_same = channels == made and stride == 1
        self.shortcut = (
            nn.Identity() if is_same else nn.Sequential(_convolution(channels, made, 1), nn.BatchNorm2d(made))
        )
        self._stride = stride

    def forward(self, images: Tensor) -> Tensor:
        """Return N x `made` x H/stride x W/stride features."""
        features = relu(self.bn1(self.conv1(images)))
        # This slice replaces the stride of a convolution of 1 x 1. With a stride and fewer than 8 input
        # channels, the gradients of such a convolution can crash the process on CPUs that have AVX2 but not
        # AVX-512 (oneDNN's jit_1x1:avx2, PyTorch 2.13).
        some = images[..., :: self._stride, :: self._stride]
        return relu(self.bn2(self.conv2(features)) + self.shortcut(some))


def resnet18(channels: int, classes: int, width: int = 64) -> nn.Module:
    """Return the network, which maps N x channels x H x W images to N x classes scores.

    The first stage has `width` channels, and each further stage has twice as many channels at half the
    resolution. Convolutions are initialized from the normal distribution of He et al. (arXiv:1502.01852,
    2015).
    """
    layers: list[nn.Module] = [_convolution(channels, width, 3), nn.BatchNorm2d(width), nn.ReLU()]
    before = width
    for stage in range(_STAGES):
        made = width * 2**stage
        for block in range(_BLOCKS):
            layers.append(Block(before, made, stride=2 if stage and not block else 1))
            before = made
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes)]
    return nn.Sequential(*layers)


def _convolution(channels: int, made: int, size: int, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(channels, made, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer

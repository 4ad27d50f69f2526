"""The network has the size of the paper's, its shape for images of any size, and gradients for any width."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from image_classification.resnet import Block, resnet18

from tests.support.trainers.forkserver import ForkServer
from tests.support.trainers.groups import ROOT
from tests.support.trainers.launcher import Launcher

GRADIENTS = """
import torch
from image_classification.resnet import resnet18
for width in (1, 3, 4, 8):
    images = torch.rand(64, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    model = resnet18(3, 7, width)
    for _ in range(5):
        model(images).sum().backward()
"""


def test_it_has_the_parameters_of_resnet_18_with_the_first_layer_of_cifar() -> None:
    model = resnet18(channels=3, classes=10)
    assert sum(parameter.numel() for parameter in model.parameters()) == 11_173_962
    layers = sum(isinstance(each, torch.nn.Conv2d | torch.nn.Linear) for each in model.modules())
    assert layers - 3 == 18, "the three shortcuts with a convolution do not count"


@pytest.mark.parametrize("size", [8, 28, 32])
def test_it_scores_images_of_any_size(size: int) -> None:
    assert resnet18(1, 7, width=4)(torch.rand(5, 1, size, size)).shape == (5, 7)


def test_a_shortcut_convolves_every_second_pixel() -> None:
    images = torch.rand(2, 4, 7, 7, dtype=torch.float64)
    block = Block(4, 8, stride=2).double().eval()
    assert isinstance(block.shortcut, torch.nn.Sequential)
    convolution, norm = block.shortcut
    assert isinstance(convolution, torch.nn.Conv2d)
    strided = torch.nn.functional.conv2d(images, convolution.weight, stride=2)
    features = block.bn2(block.conv2(torch.relu(block.bn1(block.conv1(images)))))
    expected = torch.relu(features + norm(strided))
    torch.testing.assert_close(block(images), expected)


def test_narrow_networks_have_gradients_on_cpus_without_avx_512(
    tmp_path: Path, forks: Sequence[ForkServer]
) -> None:
    path = f"{ROOT}:{ROOT / 'trainer_images'}"
    with Launcher(tmp_path, forks=forks) as launcher:
        end = launcher.run("-c", GRADIENTS, PYTHONPATH=path, ONEDNN_MAX_CPU_ISA="AVX2")
    assert end == (0, "", "")

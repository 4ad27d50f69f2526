"""The network has the size of the paper's, and its shape for images of any size."""

import pytest
import torch
from image_classification.resnet import resnet18


def test_it_has_the_parameters_of_resnet_18_with_the_first_layer_of_cifar() -> None:
    model = resnet18(channels=3, classes=10)
    assert sum(parameter.numel() for parameter in model.parameters()) == 11_173_962
    layers = sum(isinstance(each, torch.nn.Conv2d | torch.nn.Linear) for each in model.modules())
    assert layers - 3 == 18, "the three shortcuts with a convolution do not count"


@pytest.mark.parametrize("size", [8, 28, 32])
def test_it_scores_images_of_any_size(size: int) -> None:
    assert resnet18(1, 7, width=4)(torch.rand(5, 1, size, size)).shape == (5, 7)

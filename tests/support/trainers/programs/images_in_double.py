"""Runs a module that trains on images, but with 64-bit numbers: python -m THIS MODULE

With 32-bit numbers, a rounding error can decide whether a ReLU passes a value near 0. The weights then differ
by up to 0.01, on some CPUs and with some seeds.
"""

import runpy
import sys
from dataclasses import replace

import torch
from image_classification import data

_load = data.load


def _doubled(uri: str) -> data.Dataset:
    found = _load(uri)
    train, test = (replace(each, pixels=each.pixels.double()) for each in (found.train, found.test))
    return replace(found, train=train, test=test)


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    data.load = _doubled
    runpy.run_module(sys.argv[1], run_name="__main__", alter_sys=True)

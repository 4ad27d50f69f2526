"""Horovod on PyTorch on the questions."""

"""The questions, learned with Horovod on PyTorch."""

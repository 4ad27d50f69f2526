"""Trains a classifier of questions with Horovod and PyTorch."""

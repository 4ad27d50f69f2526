"""Trains a classifier of questions with PyTorch: data parallel, with or without torchrun, elastic or not."""

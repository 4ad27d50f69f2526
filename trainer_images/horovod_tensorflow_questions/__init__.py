"""Trains a classifier of questions with Horovod and TensorFlow."""

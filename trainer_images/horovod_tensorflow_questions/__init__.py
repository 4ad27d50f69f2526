"""Horovod on TensorFlow on the questions."""

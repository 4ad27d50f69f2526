"""Trains a classifier of questions with JAX: one program on the devices of all processes."""

"""Trains a classifier of questions with NumPy and MPI."""

"""Trains a classifier of questions with TensorFlow.

The program `workers` is synchronous, and `parameter_server` is asynchronous.
"""

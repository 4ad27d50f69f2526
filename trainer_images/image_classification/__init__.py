"""Classifies images with a residual network, under data parallelism."""

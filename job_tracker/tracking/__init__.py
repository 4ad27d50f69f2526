"""Moves jobs from state to state: the leader decides on a step, then takes it."""

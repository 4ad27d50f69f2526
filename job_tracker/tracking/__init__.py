"""Moves jobs through their lives: one leader decides a step, then takes it."""

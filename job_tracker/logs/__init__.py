"""Logs of ranks: records with times, in bounded size. They can be read from any position.

When a group was stopped, its logs are moved to storage.
"""

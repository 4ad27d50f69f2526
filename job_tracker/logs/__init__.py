"""Logs of ranks: records with times, in bounded size. They can be read from any position.

After a group was stopped, its logs are moved to storage.
"""

"""Logs of ranks: records with times, bounded in size, readable from any position, stored after the end."""

"""Turns messages and results into plain strings (as in `lines`), Rich objects (as in `panels`) and images."""

"""Stores of jobs: protocols by subject, and their implementations."""

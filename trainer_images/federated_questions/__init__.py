"""Federated averaging: every instance learns from questions that no other sees, and only weights travel."""

"""Federated averaging: every instance learns from its own questions, and only weights are sent."""

"""Statuses as text: pure functions from messages to strings (`lines`) and rich objects (`panels`)."""

"""Converts between messages of the API and types of the domain."""

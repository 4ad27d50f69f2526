"""Kills the service, or makes a call of it fail, at every place where it touches the outside."""

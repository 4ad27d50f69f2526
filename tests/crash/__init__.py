"""Kills the service, or makes a call fail, at every point where it touches the outside."""

"""Encryption of connections, and who is at their other end."""

"""Encryption of connections, and identification of the peers."""

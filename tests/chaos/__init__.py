"""Chaos from outside: real services and clients, honest and hostile jobs, kills and freezes at random."""

"""Chaos from outside: real services and clients, honest and hostile jobs, random kills and freezes."""

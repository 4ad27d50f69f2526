"""Tokens, projects and their members, which decide the rights of callers, and the operations on them."""

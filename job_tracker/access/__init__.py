"""Tokens, projects and their members, and the operations on them. They decide the rights of callers."""

"""Tokens, projects and their members, and the operations on them.

Tokens and members decide the rights of callers.
"""

"""Tokens, projects and their members, and the operations on them.

The rights of a caller depend on its token or client certificate, and on its roles as a member of projects.
"""

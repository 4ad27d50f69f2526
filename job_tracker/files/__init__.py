"""Untrusted files: files that jobs can write, locally or in storage, opened safely and read within bounds."""

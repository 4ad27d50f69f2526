"""Admission: turns a request into a job that can run, or into an error that names the invalid field."""

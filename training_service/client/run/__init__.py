"""Prepares the files of a folder for their upload to the service, so that a job can run a program in them."""

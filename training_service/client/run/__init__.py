"""Prepares the upload of a folder's files to the service, so that a job can run a program in a copy of the
folder.
"""

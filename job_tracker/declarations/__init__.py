"""Algorithms, datasets and queues of files and of the API. They change without a restart."""

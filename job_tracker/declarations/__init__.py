"""The algorithms, datasets and queues that files and the API declare. They change without a restart."""

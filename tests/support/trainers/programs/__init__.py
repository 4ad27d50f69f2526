"""The programs of training processes."""

"""Where groups of instances run."""

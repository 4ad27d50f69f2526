"""Files that jobs write or that lie in storage: opened as hostile, read within bounds."""

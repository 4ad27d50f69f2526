"""Training processes, alone and in groups, started as by the service."""

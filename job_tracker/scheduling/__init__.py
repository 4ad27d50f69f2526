"""Which queued job goes next, and whether it fits."""

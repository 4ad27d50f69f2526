"""What several backends do alike."""

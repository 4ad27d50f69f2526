"""Training processes: started as the service starts them, alone and in groups."""

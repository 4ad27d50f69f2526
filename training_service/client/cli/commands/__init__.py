"""The commands of trainctl, one module each."""

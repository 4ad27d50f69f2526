"""The commands of trainctl, a module each: what is asked of the client and how it is shown."""

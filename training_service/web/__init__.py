"""The dashboard: pages for people, rendered by the service. It is one more client of `Jobs`."""

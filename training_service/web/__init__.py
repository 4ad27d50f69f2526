"""The dashboard: pages for people, rendered by the service. Like the API, it calls `Jobs`."""

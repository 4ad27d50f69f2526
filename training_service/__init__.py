"""The training service: its servers, its client, its dashboard and its command lines."""

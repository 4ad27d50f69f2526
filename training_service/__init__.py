"""The training service: its gRPC API, its client and its command line."""

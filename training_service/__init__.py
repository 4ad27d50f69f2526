"""The training service: the gRPC edge, its client and its command line."""

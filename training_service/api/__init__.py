"""The gRPC edge: proto in, domain, proto out."""

"""The gRPC API: it converts messages to types of the domain, calls the domain, and converts the results."""

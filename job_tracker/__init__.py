"""Jobs, and everything that runs them: the store, the tracker, the backends and the frameworks.

This package does not depend on gRPC.
"""

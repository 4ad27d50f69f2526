"""The domain: jobs and the store, tracker, backends and frameworks that move them.

It does not depend on gRPC.
"""

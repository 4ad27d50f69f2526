"""The domain: jobs and the store, tracker, backends and frameworks that move them. Knows nothing of gRPC."""

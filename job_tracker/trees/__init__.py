"""Trees of files that users upload: manifests, a store of contents by their hashes, and their removal."""

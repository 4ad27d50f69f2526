"""Trees of files that users upload: manifests, a store of contents by hash, and the removal of trees."""

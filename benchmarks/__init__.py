"""Speed and memory of the service, each next to a peer measured in the same run. See README.md."""

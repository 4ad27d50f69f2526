"""The process backend: groups of plain processes on this machine."""
